"""The search for clean cards: which cards it holds, and when it has found enough; Ray grants the lowest free card."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from attempt_stand_in import MEMBER

from fleetctl.agent import cards, cluster
from fleetctl.agent.cards import ANSWER_S, MAX_HOLDERS, UNPLACED_S, CleanCards
from fleetctl.agent.cluster import ActorRecord
from fleetctl.agent.messages import Member

HERE, ELSEWHERE = "ab" * 28, "cd" * 28


class Node:
    """A node with dirty and clean cards, granted as Ray does: a share goes to the card with the least left.

    `elsewhere` = the cards of another node, after those of this one.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *dirty: bool, elsewhere: tuple[bool, ...] = ()) -> None:
        self.dirty, self.left = (*dirty, *elsewhere), [1.0] * len((*dirty, *elsewhere))
        self.node_of = [HERE] * len(dirty) + [ELSEWHERE] * len(elsewhere)
        self.now = 0.0
        self.silent = self.broken = self.slow = self.late = False
        self.holders: list[tuple[int | None, float]] = []
        exceptions = SimpleNamespace(RayError=OSError)
        monkeypatch.setattr(cards, "ray", SimpleNamespace(
            remote=lambda _: SimpleNamespace(options=lambda **options: SimpleNamespace(
                remote=lambda: self.hold(options["num_gpus"], options["scheduling_strategy"].node_id))),
            wait=self.wait,
            get=self.get, kill=lambda holder, no_restart: self.end(holder), exceptions=exceptions))
        monkeypatch.setattr(cluster, "actor_record", lambda at: ActorRecord(
            "PENDING_CREATION", self.holders[int(at)][0] is not None, "", ""))

    def hold(self, share: float, node_id: str) -> Any:
        fits = [card for card, left in enumerate(self.left)
                if left >= share - 1e-9 and self.node_of[card] == node_id]
        card = min(fits, key=lambda card: (self.left[card], card), default=None)
        if card is not None:
            self.left[card] -= share
        self.holders.append((card, share))
        answer = "never" if card is None else "in use" if self.dirty[card] else "clean"
        at = len(self.holders) - 1
        return SimpleNamespace(_actor_id=SimpleNamespace(hex=lambda: str(at)), at=at,
                               objection=SimpleNamespace(remote=lambda *_: answer))

    def wait(self, refs: list[str], timeout: float) -> tuple[list[str], list[str]]:
        """Return which answers have arrived; if it is `slow`, every other question comes too early."""
        self.late = self.slow and not self.late
        return ([], refs) if self.silent or self.late or refs[0] == "never" else (refs, [])

    def get(self, answer: str) -> str | None:
        if self.broken:
            raise OSError("the worker died")
        return None if answer == "clean" else answer

    def end(self, holder: Any) -> None:
        card, share = self.holders[holder.at]
        if card is not None:
            self.left[card] += share

    def search(self, gpus: float, members: int = 1) -> tuple[CleanCards, bool]:
        member = MEMBER._replace(node_id=HERE, gpus=round(gpus * 10_000), vram=1)
        return self.search_for([member] * members)

    def search_for(self, members: list[Member]) -> tuple[CleanCards, bool]:
        found = CleanCards(members, lambda: self.now)
        while (answer := found.step()) is None:
            self.now += 1
            assert self.now < 1_000, "no end"
        if answer:
            found.free_the_clean()
        return found, answer


@pytest.mark.parametrize(("dirty", "gpus", "left"), [
    ((True, False), 1, [0.0, 1.0]),
    ((True, False, True, False), 2, [0.0, 1.0, 0.0, 1.0]),
    ((True, True, True, False), 1, [0.0, 0.0, 0.0, 1.0]),
    ((True, False), 0.5, [0.0, 1.0]),
])
def test_the_dirty_cards_are_held_and_the_clean_ones_are_free(
    monkeypatch: pytest.MonkeyPatch, dirty: tuple[bool, ...], gpus: float, left: list[float]
) -> None:
    node = Node(monkeypatch, *dirty)
    search, found = node.search(gpus)
    assert (found, node.left) == (True, left)
    search.release()
    assert node.left == [1.0] * len(dirty)


def test_the_answer_of_the_last_holder_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(monkeypatch, *[True] * (MAX_HOLDERS - 1), False)
    node.slow = True
    assert node.search(1)[1]
    assert node.left == [0.0] * (MAX_HOLDERS - 1) + [1.0]


def test_members_of_one_replica_on_a_node_need_separate_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(monkeypatch, True, False, False)
    assert node.search(1, members=2)[1]
    assert node.left == [0.0, 1.0, 1.0]
    assert not Node(monkeypatch, True, False).search(1, members=2)[1]


def test_clean_cards_of_a_node_stay_held_while_another_node_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(monkeypatch, True, False, elsewhere=(True, True, False))
    members = [MEMBER._replace(node_id=node_id, vram=1) for node_id in (HERE, ELSEWHERE)]
    search = CleanCards(members, lambda: node.now)
    while node.left != [0.0, 0.0, 0.0, 0.0, 1.0]:
        assert search.step() is None
    while not (found := search.step()):
        assert found is None
        assert node.left[:2] == [0.0, 0.0]
    search.free_the_clean()
    assert node.left == [0.0, 1.0, 0.0, 0.0, 1.0]
    search.release()
    assert node.left == [1.0] * 5


def test_too_few_clean_cards_on_one_node_end_the_search_on_all(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(monkeypatch, True, elsewhere=(True,) * MAX_HOLDERS)
    search, found = node.search_for([MEMBER._replace(node_id=node_id) for node_id in (HERE, ELSEWHERE)])
    assert not found
    assert node.left.count(0.0) < MAX_HOLDERS, "the other node is searched no further"
    search.release()
    assert node.left == [1.0] * (1 + MAX_HOLDERS)


@pytest.mark.parametrize(("dirty", "gpus"), [((True,), 1), ((True, False), 2), ((True, True), 0.1), ((), 1)])
def test_with_too_few_clean_cards_the_search_ends_and_holds_nothing(
    monkeypatch: pytest.MonkeyPatch, dirty: tuple[bool, ...], gpus: float
) -> None:
    node = Node(monkeypatch, *dirty)
    search, found = node.search(gpus)
    search.release()
    assert (found, node.left) == (False, [1.0] * len(dirty))
    assert len(node.holders) <= MAX_HOLDERS


def test_a_clean_card_alone_is_enough_only_if_no_other_card_is_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray may still be reclaiming the dirty card, and would grant it next."""
    node = Node(monkeypatch, False, False)
    assert node.search(1)[1]
    assert node.left == [1.0, 1.0]
    assert node.now >= UNPLACED_S


def test_a_holder_that_dies_or_does_not_respond_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(monkeypatch, True, False)
    node.broken = True
    assert not node.search(1)[1]
    node.broken, node.silent = False, True
    assert not node.search(1)[1]
    assert node.now >= ANSWER_S
