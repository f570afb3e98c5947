"""A member's cards: checked before it starts an engine, and clean ones instead of those that it refused.

Do other processes use memory on them? Ray picks a card without knowing its memory, so the check asks the driver. A card
that the driver counts and cannot open is refused. A card of which the driver says nothing is accepted, and the replica
reports it as unchecked.

A replica that refused dirty cards would get the same ones again from Ray. So the run that creates it finds clean cards
on its nodes, and holds the dirty ones until it has its own. Holders are unnamed actors of that run. They run nothing,
and end with the run at the latest.
"""

from __future__ import annotations

import operator
import time
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from . import cluster, node
from .cluster import SHARE
from .driver import MIB, CardReport, DriverCard, query_driver
from .messages import Member, Resident
from .node import node_environment
from .processes import is_called, users_text
from .report import CARD_FAILURES

CLEAN_S = 20.0
"""A card may still be freeing memory for a while after its last engine has ended."""
SAMPLE_S = 0.5

REFUSED = ("CARD_IN_USE", "CARD_COOLING", *CARD_FAILURES)
"""Codes of a member that refuses its granted cards; other cards of the node may be usable."""


class CardCheck(NamedTuple):
    """The granted cards as the driver reports them, the objection to one with its code, and why one was not checked.

    `failed` = the number and UUID of a card that has failed itself, as far as known. `use_uuids` = not every card of
    the host can be opened, so CUDA may number the others anew.
    """

    cards: Sequence[Optional[DriverCard]] = ()
    objection: Optional[str] = None
    unchecked: Optional[str] = None
    code: str = "CARD_IN_USE"
    failed: Sequence[str] = ()
    use_uuids: bool = False

    @property
    def is_final(self) -> bool:
        """Whether there is an objection that waiting does not remove."""
        return self.objection is not None and self.code != "CARD_IN_USE"


def find(cards: Sequence[DriverCard], granted: str) -> Optional[DriverCard]:
    """Return the card that CUDA uses for an id: a number, a UUID, or a prefix of exactly one UUID."""
    if granted.isdigit():
        return next((card for card in cards if card.number == granted and not card.is_part), None)
    named = [card for card in cards if granted == card.uuid]
    named = named or [card for card in cards if granted[:4] in ("GPU-", "MIG-") and card.uuid.startswith(granted)]
    return named[0] if len(named) == 1 else None


def check_granted(
    answer: CardReport, granted: Sequence[str], gpu_share: int, vram_bytes: int, cooling: Sequence[str] = (),
    residents: Sequence[Resident] = (), *, restarted: bool = False,
) -> CardCheck:
    """Check the granted cards against the driver's report; `cooling` = the UUIDs of cards that take nothing new.

    `restarted` = the replica was on these cards before: faults of their memory do not end it for good.
    """
    found = [find(answer.cards, card_id) for card_id in granted]
    lost = [_lost(answer, card_id) for card_id, card in zip(granted, found) if card is None]
    check = CardCheck(found, None, _unchecked(answer, granted, found), use_uuids=bool(answer.lost))
    for card_id in filter(None, lost):
        why = answer.lost.get(card_id) or "; ".join(f"card {number}: {text}" for number, text in answer.lost.items())
        text = f"{_named(card_id)} is lost: the driver counts it and cannot open it ({why})"
        return check._replace(objection=text, code="CARD_LOST", failed=[card_id])
    for card in found:
        if card and card.fault and not restarted:
            text = f"{card} ({card.uuid}) has {card.fault}"
            return check._replace(objection=text, code="CARD_FAULTY", failed=[card.number, card.uuid])
        if card and card.uuid and card.uuid in cooling:
            text = f"{card} ({card.uuid}) is cooling: several models failed on it recently"
            return check._replace(objection=text, code="CARD_COOLING")
    checked = [card for card in found if card and not card.is_divided]
    return check._replace(objection=objection(checked, gpu_share, vram_bytes, residents))


def _lost(answer: CardReport, granted: str) -> Optional[str]:
    """Return the id if it is that of a card which cannot be opened: by its number, or since no card has this UUID."""
    by_uuid = granted[:4] in ("GPU-", "MIG-") and bool(answer.lost) and not answer.trouble
    return granted if granted in answer.lost or by_uuid else None


def _named(card_id: str) -> str:
    return f"card {card_id}" if card_id.isdigit() else card_id


def _unchecked(answer: CardReport, granted: Sequence[str], found: Sequence[Optional[DriverCard]]) -> Optional[str]:
    reported = answer.cards or answer.lost
    unknown = [card_id for card_id, card in zip(granted, found) if card is None] if reported else list(granted)
    if unknown and answer.trouble:
        return answer.trouble
    if unknown and reported:
        return f"the NVIDIA driver reports no memory for {', '.join(unknown)}"
    divided = [card for card in found if card and card.is_divided]
    return f"{divided[0]} is divided (MIG), but was granted by its number" if divided else None


def objection(
    cards: Sequence[DriverCard], gpu_share: int, vram_bytes: int, residents: Sequence[Resident] = ()
) -> Optional[str]:
    """Return why no engine may start on `cards`, with the arithmetic, or None.

    Every card must have `vram_bytes` free. A whole card must also be clean: beside its known `residents`, at most
    max(1Gi, 2 % of it) in use, unless its memory is the host's.
    """
    for card in cards:
        if card.free < vram_bytes:
            need = vram_bytes // MIB
            return f"{card} has {card.free // MIB}Mi of {card.total // MIB}Mi free, {need}Mi needed"
        if gpu_share < 10_000 or card.is_unified:
            continue
        known = sum(resident.memory for resident in residents if _is_there(resident, card))
        if card.used > known + max(1 << 30, card.total // 50):
            by = users_text(card.pids) or " by another process"
            beside = f", {known // MIB}Mi belong to its residents" if known else ""
            return f"{card} was granted whole, but {card.used // MIB}Mi of it are in use{by}{beside}"
    return None


def _is_there(resident: Resident, card: DriverCard) -> bool:
    """Return whether a resident's memory belongs on a card; one with a name only while such a process uses the card.

    If the processes of the card are not known, any use counts as the resident's.
    """
    called = [is_called(pid, resident.process) for pid in card.pids] if resident.process else [True]
    return any(called) or all(name is None for name in called)


def names_for_engine(granted: Sequence[str], check: CardCheck) -> List[str]:
    """Return the ids by which an engine finds its cards: those granted, or UUIDs where numbers may mean other cards."""
    found = check.cards if check.use_uuids else [None] * len(granted)
    return [card.uuid if card and card.uuid else card_id for card_id, card in zip(granted, found)]


def card_numbers(granted: Sequence[str], check: CardCheck) -> List[int]:
    """Return the numbers of the granted cards, each once: the driver's, or else Ray's if it grants by number."""
    found = check.cards or [None] * len(granted)
    texts = [card.number if card else card_id for card_id, card in zip(granted, found)]
    return [int(text) for text in dict.fromkeys(texts) if text.isdigit()]


def card_uuids(check: CardCheck) -> List[str]:
    """Return the UUIDs of the granted cards that the driver reports."""
    return [card.uuid for card in check.cards if card and card.uuid]


def wait_for_clean_cards(granted: Sequence[str], gpu_share: int, vram_bytes: int, env: Mapping[str, str], *,
                         cooling: Sequence[str] = (), residents: Sequence[Resident] = (), restarted: bool = False,
                         stable: bool = False) -> CardCheck:
    """Return the check once the granted cards are clean, or after CLEAN_S; without a claim the driver is not asked.

    `stable` = also wait until memory in use has stopped falling: two equal samples in a row, or a higher one.
    """
    if gpu_share == 0:
        return CardCheck()
    deadline = time.monotonic() + CLEAN_S
    before: Optional[List[int]] = None
    while True:
        check = check_granted(query_driver(env), granted, gpu_share, vram_bytes, cooling, residents,
                              restarted=restarted)
        used = [card.used for card in check.cards if card]
        is_stable = not (stable and used) or (before is not None and all(map(operator.ge, used, before)))
        if (check.objection is None and is_stable) or check.is_final or time.monotonic() >= deadline:
            return check
        before = used
        time.sleep(2 if check.objection else SAMPLE_S)


MAX_TRIES = 3
"""How many times a replica asks for cards when Ray grants dirty ones although clean ones are free on the node."""
SEARCHING, NONE_CLEAN = "looking for clean cards there", "no other card of the node is free and clean"
MAX_HOLDERS = 11
"""On one node: eight cards, and some more because several holders may get shares of one card."""
UNPLACED_S = 15.0
"""A holder without a worker for this long has found no free card."""
ANSWER_S = 60.0


class CardHolder:
    """Holds a card, or a share of one, that Ray has granted."""

    def objection(
        self, gpu_share: int, vram_bytes: int, cooling: Sequence[str], residents: Sequence[Resident]
    ) -> Optional[str]:
        """Return why a replica could not use the card, in the replica's own words."""
        answer = query_driver(node_environment())
        return check_granted(answer, node.granted_cards(), gpu_share, vram_bytes, cooling, residents).objection


class CleanCards:
    """The search for clean cards for members of one replica, on each of their nodes. `clock` in seconds."""

    def __init__(self, members: Sequence[Member], clock: Callable[[], float] = time.monotonic) -> None:
        on_nodes: Dict[str, List[Member]] = {}
        for member in members:
            on_nodes.setdefault(member.node_id, []).append(member)
        self._searches = [_NodeSearch(there, clock) for there in on_nodes.values()]

    def step(self) -> Optional[bool]:
        """Continue without waiting. True = enough clean cards, held like the dirty ones; False = a node has too few."""
        for search in self._searches:
            if search.found is None:
                search.found = search.step()
        found = [search.found for search in self._searches]
        return False if False in found else None if None in found else True

    def free_the_clean(self) -> None:
        """End all holders except those of dirty cards, so the next request gets clean cards."""
        for search in self._searches:
            search.free_the_clean()

    def release(self) -> None:
        """End all remaining holders, which gives their cards back to Ray."""
        for search in self._searches:
            search.release()


class _NodeSearch:
    """The search on one node. If members claim different shares of a card, or different memory, the largest counts."""

    def __init__(self, members: Sequence[Member], clock: Callable[[], float]) -> None:
        self.found: Optional[bool] = None
        self._node_id, self._cooling = members[0].node_id, list(members[0].cooling_cards)
        self._residents = list(members[0].residents)
        self._vram = max(member.vram for member in members)
        self._share = min(max(member.gpus for member in members), SHARE)
        self._wanted = sum(-(-member.gpus // SHARE) for member in members)
        self._clock = clock
        self._holders: List[Any] = []
        self._clean: List[Any] = []
        self._dirty: List[Any] = []
        self._answer: Any = None
        self._since = 0.0

    def step(self) -> Optional[bool]:
        """Continue without waiting. True = enough clean cards; False = too few.

        The search continues until it holds a dirty card: Ray may still be reclaiming that one, and would grant it next.
        """
        if self._answer is None:
            self._take_one()
            return None
        done, _ = ray.wait([self._answer], timeout=0)
        if done:
            try:
                (self._dirty if ray.get(self._answer) else self._clean).append(self._holders[-1])
            except ray.exceptions.RayError:
                return False
            self._answer = None
        enough = len(self._clean) >= self._wanted
        ended = (enough and self._dirty) or len(self._holders) == MAX_HOLDERS if done else self._is_late()
        return enough if ended else None

    def _take_one(self) -> None:
        holder = ray.remote(CardHolder).options(
            num_cpus=0, num_gpus=self._share / SHARE, max_restarts=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(self._node_id, soft=False)).remote()
        self._holders.append(holder)
        self._since = self._clock()
        self._answer = holder.objection.remote(self._share, self._vram, self._cooling, self._residents)

    def _is_late(self) -> bool:
        waited_s = self._clock() - self._since
        placed = cluster.actor_record(self._holders[-1]._actor_id.hex()).placed
        return waited_s >= (ANSWER_S if placed else UNPLACED_S)

    def free_the_clean(self) -> None:
        """End all holders except those of dirty cards."""
        self._end([holder for holder in self._holders if holder not in self._dirty])

    def release(self) -> None:
        """End all remaining holders."""
        self._end(self._holders)

    def _end(self, holders: List[Any]) -> None:
        """End the given holders; this search has created them all."""
        for holder in holders:
            ray.kill(holder, no_restart=True)
        self._holders = [holder for holder in self._holders if holder not in holders]
