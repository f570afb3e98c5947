"""The policy of one node: its label, then entries of the fleet file, then notes. Later ones win, key by key."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from fleetctl.documents.fleet import NodePolicy
from fleetctl.documents.inventory import Cordon, Node
from fleetctl.documents.selector import matches

NO_CAP = 1 << 30

SLOTS_LABEL = "fleet.io/replica-slots"
"""The label with which a node sets its own slot cap."""
_SLOTS = re.compile("[1-9][0-9]{0,8}")


@dataclass(frozen=True, slots=True)
class SlotCap:
    """How many replicas of one model a node may hold, and the source of that number."""

    limit: int
    source: str


UNCAPPED = SlotCap(NO_CAP, "no cap for models that claim GPU or VRAM")
ONE_EACH = SlotCap(1, "default for models without GPU or VRAM")


@dataclass(frozen=True, slots=True)
class CoolingCard:
    """A card that has failed, or on which several models failed in a row; `uuid` empty = not known.

    `tries` = how many new replicas it may take, 0 or 1.
    """

    index: int
    uuid: str
    tries: int
    why: str


CoolingCards = tuple[CoolingCard, ...]


class Resident(NamedTuple):
    """What may use `memory` bytes of each card of a node beside replicas; `process` = only one of this name."""

    memory: int
    process: str | None = None


@dataclass(frozen=True, slots=True)
class EffectivePolicy:
    """The policy of one node, in bytes; `slot_cap` None = the default for the kind of model.

    `cooling` = the node is cordoned by the breaker, and `cordoned_by` says why.
    """

    slot_cap: SlotCap | None = None
    reserve_vram: int = 0
    gpu_memory: int | None = None
    residents: tuple[Resident, ...] = ()
    cordoned_by: str | None = None
    cooling: bool = False
    cooling_cards: CoolingCards = ()
    warm: int | None = None
    """The most memory for weights of WARM replicas; None = the default."""
    weights_ports: str | None = field(default=None, compare=False)
    """Where members serve their weights; None = at any port. Nodes that differ only in this offer the same."""

    @property
    def resident_memory(self) -> int:
        """The bytes of each card that belong to its residents."""
        return sum([one.memory for one in self.residents])

    def cap_for(self, wants_cards: bool) -> SlotCap:
        """Return the slot cap for a model that does, or does not, claim GPU or VRAM."""
        if self.slot_cap is not None:
            return self.slot_cap
        return UNCAPPED if wants_cards else ONE_EACH


def effective_policy(policies: Sequence[NodePolicy], labels: Mapping[str, str]) -> EffectivePolicy:
    """Merge the entries that select a node with `labels`."""
    cap = labelled_cap(labels)
    reserve, memory, cordon, warm, ports = 0, None, None, None, None
    residents: tuple[Resident, ...] = ()
    for place, policy in enumerate(policies):
        if not matches(policy.selector, labels):
            continue
        if policy.max_replicas_per_model is not None:
            cap = SlotCap(policy.max_replicas_per_model, f"spec.nodes[{place}].maxReplicasPerModel")
        if policy.reserve is not None:
            reserve = policy.reserve.vram
        if policy.gpu_memory is not None:
            memory = policy.gpu_memory
        if policy.residents is not None:
            residents = tuple([Resident(one.memory, one.process) for one in policy.residents])
        if policy.cordon is not None:
            cordon = f"spec.nodes[{place}].cordon" if policy.cordon else None
        if policy.warm is not None:
            warm = policy.warm
        if policy.weights_ports is not None:
            ports = policy.weights_ports
    return EffectivePolicy(cap, reserve, memory, residents, cordon, warm=warm, weights_ports=ports)


def with_notes(policy: EffectivePolicy, node: Node) -> EffectivePolicy:
    """Apply the cluster's notes about a node on top of its labels and the fleet file."""
    if node.slots is not None:
        policy = replace(policy, slot_cap=SlotCap(node.slots.value, node.slots.source))
    return replace(policy, cordoned_by=cordon_text(node.cordon)) if node.cordon is not None else policy


def cordon_text(cordon: Cordon) -> str:
    """Say who cordoned a node, until when, and why."""
    by, until = f" of {cordon.by}" if cordon.by else "", f" until {cordon.until}" if cordon.until else ""
    return f"note{by}{until}{f': {cordon.reason}' if cordon.reason else ''}"


def labelled_cap(labels: Mapping[str, str]) -> SlotCap | None:
    """Return the cap set by a node's own label; None unless that is a whole number of at least 1."""
    text = labels.get(SLOTS_LABEL)
    if text is None or not _SLOTS.fullmatch(text):
        return None
    return SlotCap(int(text), f"node label {SLOTS_LABEL}")
