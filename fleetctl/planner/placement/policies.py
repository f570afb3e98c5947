"""The policy of one node: its label, then entries of the fleet file, then notes. Later ones win, key by key.

Also what a plan notes about nodes: cards that are not reported, and slot labels without effect.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from fleetctl.documents.fleet import NodePolicy, Resident
from fleetctl.documents.inventory import Cordon, Node, unreporting
from fleetctl.documents.quantity import some
from fleetctl.documents.selector import matches

if TYPE_CHECKING:
    from fleetctl.documents.plan import Note

NO_CAP = 1 << 30

SLOTS_LABEL = "fleet.io/replica-slots"
"""The label with which a node sets its own slot cap."""
_SLOTS = re.compile("[1-9][0-9]{0,8}")
SHOWN = 5
"""The most nodes that a note names."""
_AS_WRITTEN = frozenset({"reserve", "gpu_memory", "residents", "warm", "weights_ports", "price"})


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


@dataclass(frozen=True, slots=True)
class EffectivePolicy:
    """The policy of one node, in bytes; `slot_cap` None = the default for the kind of model.

    `cooling` = the node is cordoned by the breaker, and `cordoned_by` says why.
    """

    slot_cap: SlotCap | None = None
    reserve_vram: int = 0
    gpu_memory: int | None = None
    residents: tuple[Resident, ...] = ()
    resident_memory: int = 0
    """The bytes of each card that belong to its residents."""
    cordoned_by: str | None = None
    cooling: bool = False
    cooling_cards: CoolingCards = ()
    warm: int | None = None
    """The most memory for weights of WARM replicas; None = the default."""
    weights_ports: str | None = field(default=None, compare=False)
    """Where members serve their weights; None = at any port. Nodes that differ only in this offer the same."""
    price: int | None = field(default=None, compare=False)
    """What the node costs an hour, in 1/10^6; None = unknown. Nodes that differ only in this offer the same."""

    def cap_for(self, wants_cards: bool) -> SlotCap:
        """Return the slot cap for a model that does, or does not, claim GPU or VRAM."""
        if self.slot_cap is not None:
            return self.slot_cap
        return UNCAPPED if wants_cards else ONE_EACH


def effective_policy(policies: Sequence[NodePolicy], labels: Mapping[str, str]) -> EffectivePolicy:
    """Merge the entries that select a node with `labels`."""
    cap, cordon, merged = labelled_cap(labels), None, dict[str, Any]()
    for index, policy in enumerate(policies):
        if not matches(policy.selector, labels):
            continue
        if policy.max_replicas_per_model is not None:
            cap = SlotCap(policy.max_replicas_per_model, f"spec.nodes[{index}].maxReplicasPerModel")
        if policy.cordon is not None:
            cordon = f"spec.nodes[{index}].cordon" if policy.cordon else None
        for key in _AS_WRITTEN & policy.model_fields_set:
            if (value := getattr(policy, key)) is not None:
                merged[key] = value
    reserve, residents = merged.pop("reserve", None), tuple(merged.pop("residents", ()))
    return EffectivePolicy(
        slot_cap=cap, reserve_vram=reserve.vram if reserve else 0, residents=residents,
        resident_memory=sum([resident.memory for resident in residents]), cordoned_by=cordon, **merged)


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


def policy_of(node: Node, policies: Sequence[NodePolicy]) -> EffectivePolicy:
    """Return the effective policy of a node of the inventory."""
    return with_notes(effective_policy(policies, node.all_labels), node)


def slot_notes(nodes: Iterable[Node], policies: Sequence[NodePolicy]) -> list[Note]:
    """Return a note for each slot label without effect, with the reason; nodes with the same of both share a note."""
    from fleetctl.documents.plan import Note  # slow to import, and `status` does not need it

    by_reason: dict[tuple[str, str], list[str]] = {}
    for node in sorted(nodes, key=lambda node: (node.name, node.id)):
        text = node.labels.get(SLOTS_LABEL)
        if text is None or node.state == "DEAD":
            continue
        from_label = labelled_cap(node.labels)
        held = policy_of(node, policies).slot_cap
        if from_label is None:
            by_reason.setdefault((text, ""), []).append(node.name)
        elif held is not None and held.limit != from_label.limit:
            winner = "a note" if node.slots is not None else "the fleet file"
            by_reason.setdefault((text, f"{winner} overrides it ({held.source}: {held.limit})"), []).append(node.name)
    return [Note(code="SLOTS_LABEL_OVERRULED", level="notice", nodes=names[:SHOWN], node_count=len(names),
                 message=f"{some(names, SHOWN)}: the label {SLOTS_LABEL} says {text}; {overridden}") if overridden
            else Note(code="SLOTS_LABEL_IGNORED", level="warning", nodes=names[:SHOWN], node_count=len(names),
                      message=f'{some(names, SHOWN)}: the label {SLOTS_LABEL} is "{text}", which is not a whole number '
                              "of at least 1; it is ignored")
            for (text, overridden), names in by_reason.items()]


def card_notes(nodes: Iterable[Node]) -> list[Note]:
    """Return a note for each number of cards that nodes do not report."""
    from fleetctl.documents.plan import Note

    return [Note(code="CARDS_UNREPORTED", level="warning", message=message, node_count=len(alike),
                 nodes=[node.name for node in alike[:SHOWN]]) for alike, message in unreporting(nodes)]
