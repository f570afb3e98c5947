"""The coordinator of a gang, with a stand-in for Ray: a member that died, and members whose cards are in use."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import ray.exceptions

from fleetctl.agent import cluster, gang
from fleetctl.agent.failure import StartFailed, about, encode_failure
from fleetctl.agent.gang import GangCoordinator

MEMBERS = [{"nodeId": "n1", "node": "a", "group": "main", "rank": 0},
           {"nodeId": "n2", "node": "b", "group": "main", "rank": 1}]
REPLICA = {"specHash": "h", "fleet": "lab", "members": MEMBERS}


class DiedError(Exception):
    actor_id = "02"


def test_a_member_that_died_counts_against_its_own_node(monkeypatch: pytest.MonkeyPatch) -> None:
    def get(*_: object, **__: object) -> None:
        raise DiedError(encode_failure("CARD_IN_USE", "card 0: 20480Mi by process 7"))

    errors = SimpleNamespace(RayError=DiedError, GetTimeoutError=TimeoutError, RayTaskError=OSError,
                             ActorUnavailableError=ConnectionError)
    monkeypatch.setattr(gang, "ray", SimpleNamespace(get=get, exceptions=errors))
    coordinator: Any = object.__new__(GangCoordinator)
    coordinator._replica, coordinator._places = REPLICA, []
    coordinator._members = [SimpleNamespace(_actor_id=SimpleNamespace(hex=lambda at=at: at)) for at in ("01", "02")]
    with pytest.raises(StartFailed, match="rank 1 of group main died: card 0: 20480Mi by process 7") as caught:
        coordinator._get([])
    assert caught.value.code == "CARD_IN_USE"
    assert about(REPLICA, caught.value.place)["nodeIds"] == ["n2"]


def test_a_gang_survives_a_member_that_is_briefly_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = ray.exceptions.ActorUnavailableError("the connection broke", b"\x01" * 16)
    answers: list[Any] = [lost, lost, ["ready"]]

    def get(*_: object, **__: object) -> Any:
        answer = answers.pop(0) if len(answers) > 1 or isinstance(answers[0], list) else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(gang, "ray", SimpleNamespace(get=get, exceptions=ray.exceptions))
    monkeypatch.setattr(gang, "POLL_S", 0)
    coordinator: Any = object.__new__(GangCoordinator)
    coordinator._replica, coordinator._places, coordinator._members = REPLICA, [], []
    assert coordinator._call_all("poll") == ["ready"]
    answers[:] = [lost]
    monkeypatch.setattr(gang, "ANSWER_S", 0)
    with pytest.raises(StartFailed, match="a member of the gang could not be reached") as caught:
        coordinator._call_all("poll")
    assert caught.value.code == "MEMBER_SILENT"


def test_a_member_that_ray_killed_for_memory_is_reported_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def get(*_: object, **__: object) -> None:
        raise ray.exceptions.OutOfMemoryError("1 worker was killed: the node runs low on memory\nRefer to the docs")

    monkeypatch.setattr(gang, "ray", SimpleNamespace(get=get, exceptions=ray.exceptions))
    coordinator: Any = object.__new__(GangCoordinator)
    coordinator._members = [SimpleNamespace(_actor_id=SimpleNamespace(hex=lambda: "01"))]
    coordinator._replica, coordinator._places = REPLICA, []
    with pytest.raises(StartFailed, match=r"gang died: 1 worker was killed: the node runs low on memory$") as caught:
        coordinator._get([])
    assert (caught.value.code, caught.value.place) == ("REPLICA_DIED", None)


def test_a_node_that_dies_before_the_group_is_granted_is_named_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray only reports that the group is pending, and the node has nothing free."""
    waited: list[float] = []
    monkeypatch.setattr(cluster, "ray", SimpleNamespace(nodes=lambda: [
        {"NodeID": "n1", "Alive": True}, {"NodeID": "n2", "Alive": not waited}]))
    coordinator: Any = object.__new__(GangCoordinator)
    coordinator._replica = {**REPLICA, "lifecycle": {"schedulingTimeout": 60}}
    coordinator._require_nodes()
    with pytest.raises(StartFailed, match="b: the node is dead or gone") as caught:
        coordinator._await_grant(SimpleNamespace(wait=waited.append))
    assert (caught.value.code, sum(waited) < 60) == ("NODE_GONE", True)


class Searching:
    """A coordinator whose placement fails as given, with scripted searches for clean cards."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *refused: list[StartFailed], found: bool = True) -> None:
        self.calls: list[str] = []
        self.coordinator: Any = object.__new__(GangCoordinator)
        members = [{**member, "gpus": 10_000, "log": "log"} for member in MEMBERS]
        self.coordinator._replica = {**REPLICA, "members": members}
        answers = list(refused)
        for name, does in {
            "_take_group": lambda: self.calls.append("ask"), "_seat_members": lambda _: answers.pop(0),
            "_end_members": lambda: self.calls.append("end members"),
            "_give_back": lambda: self.calls.append("give back"),
        }.items():
            setattr(self.coordinator, name, does)
        monkeypatch.setattr(gang, "log_of", lambda _: SimpleNamespace(say=lambda _: None))
        monkeypatch.setattr(gang, "CleanCards", lambda members: SimpleNamespace(
            node=members[0]["node"], release=lambda: self.calls.append(f"release {members[0]['node']}")))
        monkeypatch.setattr(gang, "find_all", lambda searches: self.calls.append(
            f"search {' '.join(one.node for one in searches)}") or found)


def refusals(*places: int) -> list[StartFailed]:
    return [StartFailed("CARD_IN_USE", f"in use on {MEMBERS[at]['node']}", MEMBERS[at]) for at in places]


def test_a_gang_requests_cards_again_once_the_dirty_cards_of_all_its_nodes_are_held(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Searching(monkeypatch, refusals(0, 1), [])
    found.coordinator._take_seats()
    assert found.calls == ["ask", "end members", "give back", "search a b", "ask", "release a", "release b"]


def test_a_gang_requests_cards_at_most_three_times_and_keeps_the_held_cards_in_between(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Searching(monkeypatch, refusals(0), refusals(1), refusals(1), [])
    with pytest.raises(StartFailed, match="in use on b"):
        found.coordinator._take_seats()
    assert found.calls == ["ask", "end members", "give back", "search a", "ask", "end members", "give back", "search b",
                          "ask", "release a", "release b"]


def test_a_gang_without_a_clean_card_fails_with_the_reason_and_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Searching(monkeypatch, refusals(1), found=False)
    with pytest.raises(StartFailed, match="in use on b; no other card of the node is free and clean") as caught:
        found.coordinator._take_seats()
    assert (caught.value.code, caught.value.place) == ("CARD_IN_USE", MEMBERS[1])
    assert found.calls == ["ask", "end members", "give back", "search b", "release b"]
