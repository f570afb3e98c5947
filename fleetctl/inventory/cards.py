"""Cards from the dashboard's node summary, and how much of each Ray has granted.

The summary has NVML's view of a node, in MiB, possibly some seconds old. It is made for a user interface, not as an
API: every field may be missing, and a missing value is unknown, never 0.

Ray counts per node. An actor's card is known from the replica itself (UUIDs and indices in its repr) or from its
worker's statistics (slots, numbered like the node's cards). Every card's share is known only if these together explain
everything in use on the node; otherwise it stays unknown.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from fleetctl.documents.inventory import (
    MAX_CARD_INDEX,
    CardProcess,
    Gpu,
    Node,
    Replica,
    ReplicaMember,
    card_indices,
    unreporting,
)
from fleetctl.documents.quantity import MAX_BYTES, SHARE
from fleetctl.documents.selector import ACCELERATOR_LABEL, SIMULATED_CARDS
from fleetctl.inventory.json_values import list_of, object_of, text_of, whole_of
from fleetctl.planner.placement.ledger.node_offer import offer_of
from fleetctl.planner.placement.policies import EffectivePolicy

MIB = 1 << 20
Workers = Mapping[int, str]
"""The process titles of Ray's own workers, by pid."""
NO_WORKERS: Workers = {}

_GPU_SLOTS = re.compile(r"GPU(?:Group[0-9A-Za-z]{36})?")
"""A worker's GPUs, its own or from any bundle of a placement group, with names as the dashboard rewrites them."""

UNIFIED = frozenset({"GB10", "Orin", "Thor", "Xavier"})
"""Kinds of cards without memory of their own: Ray leaves out a card whose memory the driver does not report, and has
its name only in the node's label."""


def read_cards(entry: Mapping[str, Any], declared_gpus: int, kind: str = "", workers: Workers = NO_WORKERS, *,
               memory_by_process: bool = True) -> list[Gpu]:
    """Return the cards of one node of the summary; `declared_gpus` in 1/10000 is what the node offers to Ray.

    A node that declares GPUs but shows no cards (no statistics yet, or a vendor Ray cannot measure) gets that many
    cards of unknown kind and memory. A node's only card gets the host's memory if it has none of its own; `kind` is
    Ray's name for the card. `memory_by_process` = this version of Ray reports the memory of processes correctly.
    """
    cards = [card for item in list_of(entry.get("gpus"))
             if (card := _card(object_of(item), workers, memory_by_process)) is not None]
    if not cards:
        blank = [Gpu(index=index) for index in range(declared_gpus // SHARE)]
        return _unified(blank, entry) if re.split("[- ]", kind)[0] in UNIFIED else blank
    if all(card.memory_total is None for card in cards):
        cards = _unified(cards, entry)
    return sorted(cards, key=lambda card: (card.index, card.uuid or ""))


def _unified(cards: list[Gpu], entry: Mapping[str, Any]) -> list[Gpu]:
    """Give a node's only card the memory of the host; host memory that is not available counts as used."""
    total, available = [whole_of(amount) for amount in [*list_of(entry.get("mem")), None, None][:2]]
    if len(cards) != 1 or not total or available is None or not available <= total <= MAX_BYTES:
        return cards
    memory = {"memory_total": total, "memory_used": total - available, "memory_foreign": 0, "unified": True}
    return [cards[0].model_copy(update=memory)]


def _card(item: Mapping[str, Any], workers: Workers, memory_by_process: bool) -> Gpu | None:
    index = whole_of(item.get("index"))
    used = _bytes(item.get("memoryUsed"), zero_is_unknown=False)
    return None if index is None or index > MAX_CARD_INDEX else Gpu(
        index=index, uuid=text_of(item.get("uuid")), model=text_of(item.get("name")),
        memory_total=_bytes(item.get("memoryTotal"), zero_is_unknown=True),
        memory_used=used, memory_foreign=None if used is None else 0,
        processes=list(_processes(list_of(item.get("processesPids")), workers, memory_by_process)))


def pids_of(entry: Mapping[str, Any]) -> frozenset[int]:
    """Return the processes that have memory on any card of a node of the summary."""
    return frozenset(process.pid for item in list_of(entry.get("gpus"))
                     for process in _processes(list_of(object_of(item).get("processesPids")), NO_WORKERS, False))


def _processes(items: Sequence[Any], workers: Workers, with_memory: bool) -> Iterator[CardProcess]:
    for item in map(object_of, items):
        if (pid := whole_of(item.get("pid"))) is not None:
            memory = _bytes(item.get("gpuMemoryUsage"), zero_is_unknown=True) if with_memory else None
            yield CardProcess(pid=pid, memory=memory, command=workers.get(pid))


def with_foreign_memory(
    node: Node, members: Sequence[ReplicaMember], policy: EffectivePolicy | None = None
) -> Node:
    """Return the node with the memory in use on each card beyond Ray's grants, as a plan counts it under a policy."""
    if not any(card.memory_used for card in node.gpus):
        return node
    foreign = {card.index: card.foreign for card in offer_of(node, members, policy or EffectivePolicy()).cards
               if card.foreign}
    cards = [card.model_copy(update={"memory_foreign": foreign[card.index]}) if card.index in foreign else card
             for card in node.gpus]
    return node.model_copy(update={"gpus": cards}) if foreign else node


def with_unreported(nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes with the number of cards that they offer to Ray and do not report.

    Ray's reporter ends its list at the first card that it cannot open. GPUs count as simulated if the node says so by a
    label, or if no node reports any card and Ray has seen no kind of card on the node.
    """
    reported = [sum(bool(card.uuid or card.model or card.memory_total) for card in node.gpus) for node in nodes]
    real, marked = any(reported), list[Node]()
    for node, count in zip(nodes, reported, strict=True):
        missing = int(node.resources.total.gpu) - count
        if missing > 0 and node.state != "DEAD" and SIMULATED_CARDS not in node.labels.items() and (
                real or ACCELERATOR_LABEL in node.labels):
            marked.append(node.model_copy(update={"unreported_cards": missing}))
        else:
            marked.append(node)
    return marked


def _bytes(mebibytes: object, *, zero_is_unknown: bool) -> int | None:
    """Convert MiB to bytes; unified-memory devices report no total, and some agents report -1."""
    if isinstance(mebibytes, bool) or not isinstance(mebibytes, (int, float)):
        return None
    if not 0 <= mebibytes <= MAX_BYTES // MIB:
        return None
    return None if zero_is_unknown and mebibytes == 0 else int(mebibytes * MIB)


def card_warnings(nodes: Iterable[Node]) -> Iterator[str]:
    """Yield warnings about the cards of `nodes`, which are not dead."""
    seen: defaultdict[str, list[str]] = defaultdict(list)
    nodes = list(nodes)
    if any(node.unreported_cards for node in nodes):
        yield from (message for _, message in unreporting(nodes))
    for node in nodes:
        declared = round(node.resources.total.gpu * SHARE)
        for card in node.gpus:
            if card.uuid:
                seen[card.uuid].append(node.name)
        if declared and len(node.gpus) != declared // SHARE and not node.unreported_cards:
            yield (f"{node.name} offers {declared / SHARE:g} GPUs to Ray but reports {len(node.gpus)} cards; "
                   "which of them Ray grants is unknown")
    for uuid, names in sorted(seen.items()):
        if len(names) > 1:
            yield f"card {uuid} is reported by {', '.join(sorted(names))}: Ray nodes that share a machine"


def with_shares(cards: Sequence[Gpu], granted: Mapping[int, int], used_gpus: int) -> list[Gpu]:
    """Return the cards of one node with their share filled in.

    `granted` is card index -> 1/10000 known to be granted, `used_gpus` the 1/10000 in use on the whole node. If more is
    granted than in use, the statistics include ended workers: they lag behind Ray's sums and are ignored.
    """
    if sum(granted.values()) > used_gpus:
        granted = {}
    everything_explained = sum(granted.values()) == used_gpus
    shares = {card.index: granted.get(card.index, 0) for card in cards}
    return [
        card.model_copy(update={"share": shares[card.index] / SHARE})
        if shares[card.index] <= SHARE and (everything_explained or shares[card.index] == SHARE) else card
        for card in cards
    ]


def granted_by_card(cards: Sequence[Gpu], members: Sequence[ReplicaMember], workers: Sequence[Any], *,
                    declared_gpus: int, live_actors: frozenset[str]) -> dict[int, int]:
    """Return card index -> 1/10000 granted on one node: the cards its `members` report, and the slots of other actors.

    `live_actors` are the live actors whose cards no replica reports; worker statistics lag, and others are ignored.
    Slots count only if the node shows as many cards as it declares and the card has that much left: a gang's member may
    be reported and have slots as well.
    """
    granted: defaultdict[int, int] = defaultdict(int)
    for member in members:
        for index in card_indices(member, cards):
            granted[index] += min(member.gpus, SHARE)
    if len(cards) == declared_gpus // SHARE:
        for slot, share in _slots(workers, live_actors):
            if 0 <= slot < len(cards) and granted[cards[slot].index] + share <= SHARE:
                granted[cards[slot].index] += share
    return dict(granted)


def reports_its_cards(replica: Replica) -> bool:
    """Return whether the replica reports the cards of all its members."""
    return all(not member.gpus or member.gpu_uuids or member.gpu_indices for member in replica.members)


def holds_cards(worker: object) -> bool:
    """Return whether the statistics of a worker name GPUs."""
    return any(map(_GPU_SLOTS.fullmatch, object_of(object_of(worker).get("usedResources"))))


def _slots(workers: Sequence[Any], live_actors: frozenset[str]) -> Iterator[tuple[int, int]]:
    for worker in map(object_of, workers):
        if worker.get("actorId") not in live_actors:
            continue
        for name, amount in object_of(worker.get("usedResources")).items():
            for slot in list_of(object_of(amount).get("resourceSlots")) if _GPU_SLOTS.fullmatch(name) else ():
                with suppress(KeyError, TypeError, ValueError, OverflowError):
                    yield int(slot["slot"]), round(float(slot["allocation"]) * SHARE)
