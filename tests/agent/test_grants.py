"""Whether a replica without a worker may hold its resources, judged by the decrease on its node."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from attempt_stand_in import MEMBER

from fleetctl.agent import cluster
from fleetctl.agent.create import CreatedHere, Grants

NODE = "n1"


class Node:
    """A node with cards; `foreign` = resources that foreign actors have taken since."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free = 4.0
        self.cpus = 8.0
        self.foreign = 0.0
        self.grants = Grants()
        self.count = 0
        self.asked: list[tuple[str, int, list[str]]] = []
        self.is_listed = True
        monkeypatch.setattr(cluster, "free_by_node", lambda: {NODE: self.amounts()} if self.is_listed else {})
        monkeypatch.setattr(cluster, "started_since", self.started_since)

    def amounts(self) -> dict[str, float]:
        """Ray leaves out what is used up."""
        return {name: amount for name, amount in (("GPU", self.free), ("CPU", self.cpus)) if amount}

    def started_since(self, node_id: str, at_ms: int, exclude: Collection[str] = ()) -> dict[str, float]:
        self.asked.append((node_id, at_ms, sorted(exclude)))
        return {"GPU": self.foreign} if self.foreign else {}

    def create(self, gpus: float, cpus: float = 0) -> CreatedHere:
        self.count += 1
        created = CreatedHere(f"r{self.count}", None, f"id-{self.count}", "", {NODE: self.amounts()}, self.count)
        share = MEMBER._replace(node_id=NODE, gpus=round(gpus * 10_000), cpus=round(cpus * 10_000))
        self.grants.created(created, share)
        return created

    def may_hold(self, created: CreatedHere) -> bool:
        return self.grants.may_be_granted(created, NODE)


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(monkeypatch)


def test_a_decrease_by_its_claim_may_be_its_grant(node: Node) -> None:
    one = node.create(2)
    node.free = 2.0
    assert node.may_hold(one)


def test_a_later_replica_that_is_dead_explains_nothing(node: Node) -> None:
    """It took a card and returned it: the decrease is the earlier replica's grant."""
    node.free = 1.0
    one, later = node.create(1), node.create(1)
    node.grants.placed(later)
    node.free = 0.0
    assert not node.may_hold(one)
    node.grants.ended(later)
    assert node.may_hold(one)


def test_what_others_have_given_back_hides_no_grant(node: Node) -> None:
    node.free = 1.0
    one = node.create(1, cpus=2)
    node.free = 0.0  # its card is granted; its CPUs are, too, but a task of others has ended
    assert node.may_hold(one)


def test_a_node_as_free_as_before_has_granted_nothing(node: Node) -> None:
    node.free = 1.0
    assert not node.may_hold(node.create(2))


def test_resources_of_a_foreign_actor_are_no_grant(node: Node) -> None:
    one = node.create(4)
    node.free, node.foreign = 3.0, 1.0
    assert not node.may_hold(one)
    node.free, node.foreign = 0.0, 4.0
    assert not node.may_hold(one)


def test_resources_of_a_task_look_like_a_grant_and_count_as_one(node: Node) -> None:
    one = node.create(4)
    node.free = 0.0
    assert node.may_hold(one)


def test_the_grant_of_another_replica_of_this_run_explains_only_itself(node: Node) -> None:
    first, second = node.create(1), node.create(4)
    node.free = 3.0
    node.grants.placed(first)
    assert not node.may_hold(second)
    node.free = 0.0
    assert node.may_hold(second)


def test_a_grant_that_was_already_counted_explains_nothing_when_its_worker_starts(node: Node) -> None:
    """Two slow workers: the first grant was made before the second replica was created; its worker starts later."""
    first = node.create(1)
    node.free = 3.0
    second = node.create(1)
    node.free = 2.0
    node.grants.placed(first)
    assert node.may_hold(second)


def test_the_grant_of_a_later_replica_explains_the_decrease(node: Node) -> None:
    first, second = node.create(4), node.create(1)
    node.free = 3.0
    node.grants.placed(second)
    assert not node.may_hold(first)


def test_a_replica_placed_before_the_next_was_created_explains_nothing(node: Node) -> None:
    first = node.create(1)
    node.free = 3.0
    node.grants.placed(first)
    second = node.create(1)
    node.free = 2.0
    assert node.may_hold(second)


def test_of_two_waiting_replicas_each_may_hold_the_grant(node: Node) -> None:
    first, second = node.create(1), node.create(1)
    node.free = 3.0
    assert node.may_hold(first)
    assert node.may_hold(second)


def test_of_two_waiting_replicas_neither_explains_the_decrease_of_the_last_card(node: Node) -> None:
    node.free = 1.0
    first, second = node.create(1), node.create(1)
    node.free = 0.0
    assert (node.may_hold(first), node.may_hold(second)) == (True, True)
    ours = ["id-1", "id-2"]
    assert node.asked == [(NODE, 1, ours), (NODE, 2, ours)], "only what others have started since explains a decrease"


def test_a_node_that_had_nothing_free_has_granted_nothing(node: Node) -> None:
    node.free = 0.0
    assert not node.may_hold(node.create(1))


def test_a_node_that_ray_no_longer_lists_may_have_granted_it(node: Node) -> None:
    one = node.create(4)
    node.is_listed = False
    assert node.may_hold(one)


def test_a_later_replica_without_cards_explains_no_decrease_of_cards(node: Node) -> None:
    node.free = 1.0
    first, later = node.create(1), node.create(0, cpus=1)
    node.grants.placed(later)
    node.free = 0.0
    assert node.may_hold(first)


def test_a_node_with_just_enough_room_is_not_short(node: Node) -> None:
    node.free = 2.0
    assert node.may_hold(node.create(2))


def test_amounts_that_differ_by_no_more_than_rays_rounding_are_equal(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "SLACK", 0.25)
    node.free = 0.75
    one = node.create(1)
    assert node.may_hold(one), "there is room"
    node.free = 0.0
    assert node.may_hold(one), "it has decreased by the claim"
