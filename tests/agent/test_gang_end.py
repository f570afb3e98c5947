"""The coordinator of a gang, with a stand-in for Ray: a member that died, and members whose cards are in use."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import ray.exceptions

from fleetctl.agent import cluster, gang
from fleetctl.agent.cause import LOGGED, RAISED, REACTION, Cause
from fleetctl.agent.gang import GangCoordinator
from fleetctl.agent.messages import FailedStart, Lifecycle, Member, Place, Replica
from fleetctl.agent.report import StartFailed, about, encode_failure, place_of

MEMBERS = tuple(Member("main", 0, role, rank, f"n{rank + 1}", node, gpus=10_000, log="log")
                for rank, (role, node) in enumerate((("Leader", "a"), ("Worker", "b"), ("Worker", "c"))))
REPLICA = Replica("m/0", "m", 0, Lifecycle(60.0, scheduling_timeout=60.0), "h", fleet="lab", members=MEMBERS)


class DiedError(Exception):
    actor_id = "02"


def test_a_member_that_died_counts_against_its_own_node(monkeypatch: pytest.MonkeyPatch) -> None:
    failure = FailedStart("CARD_IN_USE", "card 0: 20480Mi by process 7")

    def get(*_: object, **__: object) -> None:
        raise DiedError(encode_failure(failure))

    errors = SimpleNamespace(RayError=DiedError, GetTimeoutError=TimeoutError, RayTaskError=OSError,
                             ActorUnavailableError=ConnectionError)
    monkeypatch.setattr(gang, "ray", SimpleNamespace(get=get, exceptions=errors))
    coordinator: Any = object.__new__(GangCoordinator)
    coordinator._replica, coordinator._places = REPLICA, []
    coordinator._members = [SimpleNamespace(_actor_id=SimpleNamespace(hex=lambda at=at: at)) for at in ("01", "02")]
    with pytest.raises(StartFailed, match="rank 1 of group main died: card 0: 20480Mi by process 7") as caught:
        coordinator._get([])
    assert caught.value.code == "CARD_IN_USE"
    assert about(REPLICA, caught.value).node_ids == ("n2",)
    failure = FailedStart("CARD_FAULTY", "card 0: bad memory", gpu_uuids=["GPU-0"], gpu_indices=[0])
    with pytest.raises(StartFailed) as caught:
        coordinator._get([])
    found = about(REPLICA, caught.value)
    assert (found.code, found.gpu_uuids, found.gpu_indices) == ("CARD_FAULTY", ("GPU-0",), [0])


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
    assert (caught.value.code, caught.value.places) == ("REPLICA_DIED", [])


def test_a_node_that_dies_before_the_group_is_granted_is_named_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray only reports that the group is pending, and the node has nothing free."""
    waited: list[float] = []
    monkeypatch.setattr(cluster, "ray", SimpleNamespace(nodes=lambda: [
        {"NodeID": "n1", "Alive": True}, {"NodeID": "n2", "Alive": not waited}, {"NodeID": "n3", "Alive": True}]))
    coordinator: Any = object.__new__(GangCoordinator)
    coordinator._replica = REPLICA
    coordinator._require_nodes()
    with pytest.raises(StartFailed, match="b: the node is dead or gone") as caught:
        coordinator._await_grant(SimpleNamespace(wait=waited.append))
    assert (caught.value.code, sum(waited) < 60) == ("NODE_GONE", True)


class Seating:
    """A coordinator whose members answer as given: with an error, or with their place. Records what it does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *errors: StartFailed | None) -> None:
        self.calls: list[str] = []
        self.coordinator: Any = object.__new__(GangCoordinator)
        self.coordinator._replica, self.coordinator._members = REPLICA, []
        self.coordinator._places, self.coordinator._failed = [], None
        answers = iter([error or (place_of(member)._replace(ip="10.0.0.7", port=7001), 7002)
                        for error, member in zip(errors, MEMBERS, strict=True)])
        monkeypatch.setattr(gang, "ray", SimpleNamespace(
            remote=lambda _: SimpleNamespace(options=lambda **_: SimpleNamespace(remote=self.member)),
            kill=lambda member, no_restart: self.calls.append(f"end {member.node}"),
            get_runtime_context=lambda: SimpleNamespace(get_actor_id=lambda: "ab")))
        monkeypatch.setattr(gang, "PlacementGroupSchedulingStrategy", lambda *_, **__: None)
        for name, does in {"_take_group": lambda: None, "_await_grant": lambda _: None,
                           "_get": lambda _: self.answer(next(answers)),
                           "_give_back": lambda: self.calls.append("give back")}.items():
            setattr(self.coordinator, name, does)

    def member(self, member: Member, restarted: bool) -> Any:
        return SimpleNamespace(node=member.node, seat=SimpleNamespace(remote=lambda: None))

    def answer(self, answer: Any) -> list[Any]:
        if isinstance(answer, StartFailed):
            raise answer
        return [answer]


def refusal(at: int, code: str = "CARD_IN_USE") -> StartFailed:
    return StartFailed(code, f"in use on {MEMBERS[at].node}", [place_of(MEMBERS[at])])


def test_a_gang_whose_members_refuse_their_cards_fails_with_the_nodes_of_all_that_do_and_holds_nothing(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run looks for clean cards there, and creates the gang again."""
    kept: list[FailedStart] = []
    found = Seating(monkeypatch, refusal(0, "CARD_COOLING"), None, refusal(2))
    monkeypatch.setattr(gang, "keep_failure", lambda _, failure: kept.append(failure))
    monkeypatch.setattr(gang.threading, "Timer", lambda *_: SimpleNamespace(start=lambda: None))
    monkeypatch.setattr(gang.ReplicaActor, "_fail", lambda *_: found.calls.append("fail"))
    with pytest.raises(StartFailed, match=r"^in use on a$") as caught:
        found.coordinator._take_seats()
    found.coordinator._fail(caught.value, restarted=False)
    assert found.calls == ["end a", "end b", "end c", "give back", "fail"]
    [failure] = kept
    assert (failure.code, failure.node_ids, failure.gpu_uuids) == ("CARD_COOLING", ("n1", "n3"), ())


def test_a_lost_card_is_named_by_its_gang_even_if_another_member_refused_first(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = StartFailed("CARD_LOST", "card 3 is lost", [place_of(MEMBERS[2])._replace(gpu_indices=(3,))])
    with pytest.raises(StartFailed) as caught:
        Seating(monkeypatch, refusal(0), None, lost).coordinator._take_seats()
    failure = about(REPLICA, caught.value)
    assert (failure.code, failure.node_ids, failure.gpu_indices) == ("CARD_LOST", ("n1", "n3"), [3])


def test_a_member_that_fails_otherwise_is_the_failure_of_its_gang(monkeypatch: pytest.MonkeyPatch) -> None:
    for other in (refusal(1, "MEMBER_FAILED"), StartFailed("CARD_IN_USE", "of a member that Ray does not name")):
        found = Seating(monkeypatch, refusal(0), other, None)
        with pytest.raises(StartFailed) as caught:
            found.coordinator._take_seats()
        assert caught.value is other


def test_a_gang_whose_members_are_all_seated_knows_its_leaders_address(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Seating(monkeypatch, None, None, None)
    found.coordinator._take_seats()
    places: list[Place] = found.coordinator._places
    assert [place.node_id for place in places] == ["n1", "n2", "n3"]
    assert found.coordinator._leader_addresses == {("main", 0): ("10.0.0.7", 7002)}


class Answers:
    """Ray, with an answer of each member; an error is raised."""

    exceptions = ray.exceptions

    def wait(self, refs: list[Any], **_: object) -> tuple[list[Any], list[Any]]:
        return refs, []

    def get(self, ref: Any, **_: object) -> Any:
        if isinstance(ref, Exception):
            raise ref
        return ref


OOM, LOST = Cause("CUDA out of memory", RAISED, "2"), Cause("Connection closed by peer", REACTION, "1")
NOISE = Cause("no plugin", LOGGED, "0")


@pytest.mark.parametrize(("causes", "rank", "cause"), [
    ([LOST, OOM, NOISE], 1, "CUDA out of memory"),
    ([LOST, NOISE, None], 0, "Connection closed by peer"),
    ([OSError("dead"), OOM, None], 1, "CUDA out of memory"),
    ([OSError("dead")] * 3, 0, "Connection closed by peer"),
    ([Cause("ValueError: bad", RAISED, "1"), OOM, None], 0, "Connection closed by peer"),
])
def test_a_gang_fails_with_the_error_that_came_first_and_not_with_what_it_did_to_another_rank(
    monkeypatch: pytest.MonkeyPatch, causes: list[Any], rank: int, cause: str
) -> None:
    monkeypatch.setattr(gang, "ray", Answers())
    coordinator: Any = object.__new__(GangCoordinator)
    coordinator._places = [place_of(member) for member in MEMBERS]
    coordinator._members = [SimpleNamespace(cause=SimpleNamespace(remote=lambda one=one: one)) for one in causes]
    said = "the engine exited with code 1; cause: Connection closed by peer; last output: lost"
    failed = gang.MemberReport(code="ENGINE_EXITED", reason=said)
    with pytest.raises(StartFailed) as caught:
        coordinator._raise_if_failed([failed, gang.MemberReport(), gang.MemberReport()])
    after = f", after an error of rank {rank} of group main" if rank else ""
    assert str(caught.value) == (
        f"rank 0 of group main: the engine exited with code 1{after}; cause: {cause}; last output: lost")
    assert [place.rank for place in caught.value.places] == [rank]
