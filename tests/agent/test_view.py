"""What is left on a node while Ray's free resources lag behind what the run has created."""

from __future__ import annotations

import pytest
from attempt_stand_in import MEMBER

from fleetctl.agent import cluster
from fleetctl.agent.view import SEEN_S, VIEW_S, View


class Node:
    """A node with cards, and a view of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.free, self.cpus, self.names, self.reads = 0.0, 8.0, 4.0, {"other"}, 0
        self.view = View(lambda: self.now)
        for name, read in {"taken_names": lambda: set(self.names), "alive_nodes": lambda: {"n1": {}},
                           "draining_nodes": set, "free_by_node": self.read}.items():
            monkeypatch.setattr(cluster, name, read)

    def read(self) -> dict[str, dict[str, float]]:
        self.reads += 1
        return {"n1": {"GPU": self.free, "CPU": self.cpus} if self.free else {"CPU": self.cpus}}

    def create(self, name: str, gpus: float) -> None:
        self.view.names()
        self.view.created(name, name, [MEMBER._replace(gpus=round(gpus * 10_000))])

    @property
    def left(self) -> float:
        self.now += VIEW_S
        return self.view.left("n1").get("GPU", 0.0)


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(monkeypatch)


def test_a_claim_counts_before_and_after_ray_shows_it_and_only_once(node: Node) -> None:
    node.create("a", 2)
    assert node.left == 6
    node.free = 6
    assert node.left == 6
    node.view.granted("a")
    assert node.left == 6
    node.now += SEEN_S
    assert node.left == 6


def test_of_several_claims_ray_may_show_some(node: Node) -> None:
    node.create("a", 2)
    node.create("b", 1)
    assert node.left == 5
    for node.free in (6, 7, 5):
        assert node.left == 5
    node.create("c", 5)
    assert node.left == 0


def test_what_others_take_is_never_left(node: Node) -> None:
    node.create("a", 2)
    node.free = 1
    assert node.left == 1
    node.free = 0
    assert node.left == 0


def test_what_others_give_back_is_left_once_it_must_be_theirs(node: Node) -> None:
    node.free = 2
    node.create("a", 2)
    assert node.left == 0
    node.free = 4
    assert node.left == 2, "of four, at most two are those of the claim"


def test_once_ray_must_show_a_grant_its_own_number_counts(node: Node) -> None:
    node.create("a", 2)
    node.view.granted("a")
    node.free = 7  # two are granted, and another run has given back one
    node.now += SEEN_S - 2 * VIEW_S
    assert node.left == 6
    assert node.left == 7
    assert node.view._nodes == {}


def test_what_nobody_claims_is_as_ray_shows_it(node: Node) -> None:
    node.create("a", 2)
    assert node.left == 6
    for node.cpus in (3.0, 9.0):
        assert node.left == 6
        assert node.view.left("n1")["CPU"] == node.cpus


def test_nothing_is_left_on_a_node_that_ray_does_not_list(node: Node) -> None:
    assert node.view.left("n9") == node.view.free("n9") == {}
    node.view.created("a", "a", [MEMBER._replace(node_id="n9")])
    assert node.view.left("n9") == {}
    node.view.ended("a", "a")
    assert node.view.left("n9") == {}


def test_a_claim_on_what_ray_showed_as_used_up_counts_once_ray_shows_it_as_free(node: Node) -> None:
    node.free = 0
    node.create("a", 2)
    node.free = 8
    assert node.left == 6


def test_a_replica_that_ends_matters_on_its_own_node_alone(node: Node) -> None:
    node.create("a", 2)
    node.view.created("b", "b", [MEMBER._replace(node_id="n9")])
    node.view.ended("b", "b")
    assert node.left == 6


def test_a_replica_that_ends_gives_back_what_ray_has_shown(node: Node) -> None:
    node.create("a", 2)
    node.create("b", 1)
    node.free = 5
    assert node.left == 5
    node.view.ended("a", "a")
    node.free = 7
    assert node.left == 7


def test_a_claim_that_is_never_granted_counts_until_its_replica_ends(node: Node) -> None:
    node.create("a", 2)
    node.now += 1_000
    assert node.left == 6
    node.view.ended("a", "a")
    assert node.left == 8


def test_a_replica_that_ends_frees_its_claim_and_its_name(node: Node) -> None:
    node.create("a", 2)
    node.create("b", 1)
    node.names.add("a")
    assert node.view.names() >= {"a", "b", "other"}
    node.view.ended("a", "a")
    assert "a" not in node.view.names()
    assert node.left == 7


def test_one_read_serves_for_a_while(node: Node) -> None:
    for _ in range(5):
        assert node.view.trouble("n1") is None
        assert node.view.free("n1")["GPU"] == 8
        node.now += VIEW_S / 5
    assert node.reads == 1
    node.now += VIEW_S
    assert node.view.trouble("n2") == ("NODE_GONE", "the node is dead or gone")
    assert node.reads == 2


def test_what_it_is_told_reads_nothing(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The replica exists by then: an error of Ray must not make the run forget it."""
    node.create("a", 2)
    node.now += 10

    def silent() -> None:
        raise ConnectionError

    monkeypatch.setattr(cluster, "taken_names", silent)
    node.view.created("b", "b", [MEMBER])
    node.view.granted("b")
    node.view.ended("b", "b")
    with pytest.raises(ConnectionError):
        node.view.names()
