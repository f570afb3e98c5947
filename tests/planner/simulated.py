"""A simulated cluster: cards, CPUs and memory of nodes, and Ray's choice of cards. Shares no code with the planner."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from fleetctl.documents.fleet import NodePolicy
from fleetctl.documents.inventory import Inventory, Node, Replica

LIVE = {"DEPENDENCIES_UNREADY", "PENDING_CREATION", "ALIVE", "RESTARTING"}
WHOLE = 10_000


def selects(selector: dict[str, str], labels: dict[str, str]) -> bool:
    """Evaluate a selector by Ray's rules, implemented independently: v, !v, in(a, b), !in(a, b)."""
    for key, text in selector.items():
        negated, rest = text.startswith("!"), text.removeprefix("!")
        values = re.split(r"\s*,\s*", rest[3:-1].strip()) if rest.startswith("in(") else [rest]
        if (labels.get(key) in values) == negated:
            return False
    return True


def live_replicas(inventory: Inventory) -> list[Replica]:
    """Return replicas in a live state with no member on a dead node; a node that is not listed is not dead."""
    down = {node.id for node in inventory.nodes if node.state == "DEAD"}
    return [replica for replica in inventory.replicas if replica.state in LIVE and replica.constructed
            and all(member.node_id not in down for member in replica.members)]


@dataclass
class SimCard:
    index: int
    memory: int | None
    measured: int
    share: int = 0
    vram: int = 0
    reserve: int = 0
    unified: bool = False
    residents: int = 0

    @property
    def dirty(self) -> bool:
        return not self.unified and self.measured > self.vram + self.residents + max(2**30, (self.memory or 0) // 50)

    def has_vram(self, vram: int) -> bool:
        if vram == 0:
            return True
        return self.memory is not None and self.memory - max(self.measured, self.vram + self.residents) \
            - self.reserve >= vram

    def takes_share(self, share: int, vram: int) -> bool:
        """A share of a dirty card leaves the foreign use its memory, or without a claim on memory its part of the card."""
        if vram or not self.dirty:
            return self.has_vram(vram)
        foreign = self.measured - self.vram - self.residents
        return self.memory is not None and foreign * WHOLE <= (WHOLE - self.share - share) * self.memory

    def grant(self, share: int, vram: int, *, measured: int = 0) -> None:
        self.share += share
        self.vram += vram
        self.measured += measured


@dataclass
class SimNode:
    """One node. `exact` = every granted share is known by card, so that cards can be simulated one by one."""

    node: Node
    cap: int | None
    cordoned: bool
    cards: list[SimCard]
    gpus: int
    cpus: int
    memory: int
    exact: bool = True
    slots: dict[str, int] = field(default_factory=dict)

    @property
    def takes_new(self) -> bool:
        return self.node.state == "ALIVE" and not self.cordoned

    def share_for(self, gpus: int, vram: int, card: SimCard) -> int | None:
        if gpus:
            return gpus
        share = math.ceil(WHOLE * vram / card.memory) if card.memory else None
        return share if share is not None and share <= WHOLE else None

    def choose(self, gpus: int, vram: int) -> list[int] | None:
        """Return the cards Ray hands out for an explicit number of GPUs, or None if they do not fit."""
        if gpus >= WHOLE:
            count = gpus // WHOLE
            free = [card.index for card in self.cards
                    if card.share == 0 and not card.dirty and card.has_vram(vram)]
            return free[:count] if len(free) >= count and self.gpus >= gpus else None
        holding = [card for card in self.cards if WHOLE - card.share >= gpus]
        if not holding or self.gpus < gpus:
            return None
        pick = min(holding, key=lambda card: (WHOLE - card.share, card.index))
        return [pick.index] if pick.takes_share(gpus, vram) else None

    def take(self, gpus: int, vram: int, cpus: int, memory: int) -> list[int] | None:
        """Take a member and return its cards; None and no change if it does not fit."""
        cards = self.choose(gpus, vram) if gpus and self.exact else []
        if cards is None or self.cpus < cpus or self.memory < memory or self.gpus < gpus:
            return None
        for card in self.cards:
            if card.index in cards:
                card.grant(min(gpus, WHOLE), vram, measured=vram)
        self.gpus, self.cpus, self.memory = self.gpus - gpus, self.cpus - cpus, self.memory - memory
        return cards

    def could_take(self, gpus: int, vram: int, cpus: int, memory: int) -> bool:
        """Return whether a member of a fleet file would fit."""
        if self.cpus < cpus or self.memory < memory:
            return False
        if not gpus and not vram:
            return True
        if gpus:
            return self.gpus >= gpus and self.choose(gpus, vram) is not None
        for card in self.cards:
            share = self.share_for(0, vram, card)
            if share is not None and self.gpus >= share:
                chosen = self.choose(share, vram)
                if chosen is not None and self.share_for(0, vram, self.cards[chosen[0]]) == share:
                    return True
        return False


def simulate(
    inventory: Inventory, policies: tuple[NodePolicy, ...], fleet: str, adopt: str | None
) -> dict[str, SimNode]:
    """Return the simulated nodes by id, including all grants in the inventory."""
    live = live_replicas(inventory)
    return {node.id: _sim_node(node, policies, live, fleet, adopt) for node in inventory.nodes}


def _sim_node(
    node: Node, policies: tuple[NodePolicy, ...], live: list[Replica], fleet: str, adopt: str | None
) -> SimNode:
    label = node.labels.get("fleet.io/replica-slots", "")
    cap = int(label) if label.isascii() and label.isdigit() and label[0] != "0" else None
    reserve, gpu_memory, cordon, residents = 0, None, False, 0
    for policy in policies:
        if selects(policy.selector, {"ray.io/node-id": node.id, **node.labels}):
            cap = policy.max_replicas_per_model if policy.max_replicas_per_model is not None else cap
            reserve = policy.reserve.vram if policy.reserve is not None else reserve
            gpu_memory = policy.gpu_memory if policy.gpu_memory is not None else gpu_memory
            residents = sum(one.memory for one in policy.residents) if policy.residents is not None else residents
            cordon = policy.cordon if policy.cordon is not None else cordon
    cap = node.slots.value if node.slots is not None else cap
    cordon = cordon or node.cordon is not None
    here = [(replica, member) for replica in live for member in replica.members if member.node_id == node.id]
    total, used = node.resources.total, node.resources.used
    cards = [SimCard(gpu.index, gpu.memory_total or gpu_memory, gpu.memory_used or 0, reserve=reserve,
                     unified=gpu.unified, residents=residents) for gpu in node.gpus]
    cards += [SimCard(index, gpu_memory, 0, reserve=reserve, residents=residents) for index in range(len(cards), int(total.gpu))]
    exact = _grant(cards, node, [member for _, member in here])
    granted = sum(card.share for card in cards)
    gpus_used = max(round(used.gpu * WHOLE) if used else 0, sum(member.gpus for _, member in here), granted)
    slots: dict[str, int] = {}
    for replica in live:
        mine = replica.fleet is not None and replica.fleet in (fleet, adopt) and replica.replica_id is not None
        if mine and replica.level == "HOT" and any(member.node_id == node.id for member in replica.members):
            slots[replica.model] = slots.get(replica.model, 0) + 1
    return SimNode(
        node, cap, cordon, cards, max(0, round(total.gpu * WHOLE) - gpus_used),
        max(0, round(total.cpu * WHOLE) - max(round(used.cpu * WHOLE) if used else 0, sum(m.cpus for _, m in here))),
        max(0, int(total.memory - max(used.memory if used else 0, sum(m.memory for _, m in here)))),
        exact=exact and gpus_used == granted, slots=slots,
    )


def _grant(cards: list[SimCard], node: Node, members: list) -> bool:
    exact = True
    for member in members:
        if not member.gpus:
            continue
        if len(member.gpu_indices) * WHOLE < member.gpus:
            exact = False
        for card in cards:
            if card.index in member.gpu_indices:
                share = min(member.gpus, WHOLE)
                card.grant(share, member.vram or share * (card.memory or 0) // WHOLE)
    for gpu in node.gpus:
        card = next(card for card in cards if card.index == gpu.index)
        unknown = round((gpu.share or 0) * WHOLE) - card.share
        if unknown > 0:
            card.grant(unknown, unknown * (card.memory or 0) // WHOLE)
    return exact
