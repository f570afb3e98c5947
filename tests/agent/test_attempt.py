"""One replica from its check to its outcome, with a world that the test makes up; Ray itself is not started."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fleetctl.agent import attempt as attempt_module
from fleetctl.agent import create as create_module
from fleetctl.agent import world
from fleetctl.agent.attempt import attempt, wait_worker
from fleetctl.agent.create import CreatedHere, NotCreated, check
from fleetctl.agent.mark import encode_failure


class Clock(SimpleNamespace):
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        super().__init__(now=0.0)

    def monotonic(self) -> float:
        return float(self.now)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class World:
    """What the agent would read from Ray, and what it did: `killed` are the actors it took back."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: set[str] = set()
        self.trouble: dict[str, str] = {}
        self.short: list[str] = []
        self.has_worker = True
        self.states: list[str] = ["ALIVE"]
        self.fleet = "lab"
        self.group_granted_at = 0.0
        self.failure: Exception | None = None
        self.killed: list[str] = []
        self.events: list[str] = []
        self.clock = clock = Clock()
        monkeypatch.setattr(world, "taken_names", lambda: set(self.names))
        monkeypatch.setattr(world, "dead_or_draining", self.trouble.get)
        monkeypatch.setattr(world, "shortfalls", lambda _: list(self.short))
        monkeypatch.setattr(world, "actor_record", self.record)
        monkeypatch.setattr(world, "group_is_granted", lambda _: self.clock.now >= self.group_granted_at)
        monkeypatch.setattr(create_module, "time", clock)
        monkeypatch.setattr(attempt_module, "time", clock)
        monkeypatch.setattr(attempt_module, "create", self.create)
        kill = SimpleNamespace(kill=lambda handle, **_: self.killed.append(handle.name))
        monkeypatch.setattr(create_module, "ray", kill)
        monkeypatch.setattr(attempt_module, "ray", SimpleNamespace(
            get=self.get, get_actor=self.handle))

    def record(self, _: str) -> dict[str, Any]:
        """The actor's record; its states follow one another, one a look, and the last one stays."""
        if not self.has_worker:
            return {"State": "PENDING_CREATION", "Address": {"IPAddress": ""}}
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return {"State": state, "Address": {"IPAddress": "x"}}

    def handle(self, name: str) -> Any:
        def method(answer: str) -> Any:
            return SimpleNamespace(remote=lambda: answer)

        return SimpleNamespace(name=name, __ray_ready__=method("ready"), where=method("where"), fleet=method("fleet"),
                               _actor_id=SimpleNamespace(hex=lambda: "ab"))

    def create(self, replica: dict[str, Any]) -> CreatedHere:
        self.events.append("created")
        name = f"ModelActor:{replica['model']}:{replica['replicaId']}"
        return CreatedHere(name, self.handle(name), "ab", "1 GPU on node-a")

    def get(self, asked: str, **__: Any) -> Any:
        if self.failure:
            raise self.failure
        return self.fleet if asked == "fleet" else [{"ip": "10.0.0.7", "port": 7001}]

    def attempt(self, **more: Any) -> dict[str, Any]:
        return attempt({**REPLICA, **more}, set(), {"lab"}, lambda: self.events.append("scheduled"),
                       lambda kind, *_, **__: self.events.append(kind), lambda: False)


REPLICA = {"id": "m/2", "model": "m", "replicaId": 2, "wanted": 3, "specHash": "h", "fleet": "lab",
           "lifecycle": {"schedulingTimeout": 30, "startupTimeout": 900, "restartMax": 5, "restartBackoff": 10},
           "members": [{"nodeId": "n1", "node": "node-a"}]}


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def refusal(not_counted: frozenset[int] = frozenset()) -> tuple[str, str]:
    with pytest.raises(NotCreated) as caught:
        check(REPLICA, set(not_counted))
    return caught.value.code, str(caught.value)


def test_what_the_plan_says_still_holds(here: World) -> None:
    here.names = {"ModelActor:m:0", "ModelActor:m:1", "ModelActor:other:2", "ModelActor:m:x:2"}
    check(REPLICA, set())


def test_a_name_exists_once(here: World) -> None:
    here.names = {"ModelActor:m:2"}
    assert refusal() == ("NAME_TAKEN", "ModelActor:m:2 exists already")


def test_nothing_is_created_beyond_the_target(here: World) -> None:
    here.names = {"ModelActor:m:0", "ModelActor:m:1", "ModelActor:m:7"}
    assert refusal() == ("TARGET_REACHED", "3 of 3 are already live")
    check(REPLICA, {7})


def test_a_node_that_is_gone_or_going_takes_nothing(here: World) -> None:
    here.trouble["n1"] = "the node is draining"
    assert refusal() == ("NODE_GONE", "node-a: the node is draining")


def test_a_node_without_room_is_looked_at_again_before_it_counts(here: World) -> None:
    here.short = ["node-a has 0 GPU free, 1 needed"]
    assert refusal() == ("NODE_TAKEN", "node-a has 0 GPU free, 1 needed")
    assert create_module.time.now >= create_module.SETTLE_S


def test_a_replica_that_becomes_ready_says_where_it_answers(here: World) -> None:
    told = here.attempt()
    assert (told["outcome"], told["address"], told["nodes"]) == ("ready", "10.0.0.7:7001", ["node-a"])
    assert here.events == ["created", "replicaCreated", "scheduled"]
    assert here.killed == []


@pytest.mark.parametrize(("change", "outcome", "code"), [
    ({"names": {"ModelActor:m:0", "ModelActor:m:1", "ModelActor:m:7"}}, "skipped", "TARGET_REACHED"),
    ({"short": ["full"]}, "blocked", "NODE_TAKEN"),
])
def test_what_may_not_be_created_is_not_and_says_why(
    here: World, change: dict[str, Any], outcome: str, code: str
) -> None:
    for name, value in change.items():
        setattr(here, name, value)
    told = here.attempt()
    assert (told["outcome"], told["code"]) == (outcome, code)
    assert told["message"]
    assert (here.events, here.killed) == ([], [])


def test_a_replica_that_somebody_else_created_is_awaited_and_not_doubled(here: World) -> None:
    here.names = {"ModelActor:m:2"}
    assert here.attempt()["outcome"] == "ready"
    assert "created" not in here.events


def test_a_name_that_another_fleet_took_meanwhile_is_not_counted_as_ours(here: World) -> None:
    here.names, here.fleet = {"ModelActor:m:2"}, "theirs"
    told = here.attempt()
    assert (told["outcome"], told["code"]) == ("blocked", "CLAIMED_BY_FLEET")
    assert "theirs" in told["message"]


def test_a_replica_that_is_being_restarted_is_waited_for_and_not_called_failed(here: World) -> None:
    here.states = ["PENDING_CREATION", "RESTARTING", "RESTARTING", "ALIVE"]
    assert here.attempt()["outcome"] == "ready"


def test_alive_counts_only_once_the_actor_answers(here: World) -> None:
    here.states = ["PENDING_CREATION", "ALIVE", "DEAD"]
    here.failure = RuntimeError(encode_failure("ENGINE_EXITED", "no weights"))
    told = here.attempt()
    assert (told["outcome"], told["code"]) == ("failed", "ENGINE_EXITED")


def test_a_gang_gives_its_turn_away_only_when_its_placement_group_has_its_cards(here: World) -> None:
    here.states, here.group_granted_at = ["PENDING_CREATION"] * 30 + ["ALIVE"], 5.0
    granted_when: list[float] = []
    told = attempt({**REPLICA, "members": REPLICA["members"] * 2}, set(), {"lab"},
                   lambda: granted_when.append(here.clock.now), lambda *_, **__: None, lambda: False)
    assert told["outcome"] == "ready"
    assert granted_when == [5.0]


def test_a_replica_that_gets_no_worker_is_taken_back_with_the_arithmetic(here: World) -> None:
    here.has_worker = False
    here.names = {"ModelActor:m:0"}
    told = here.attempt()
    assert (told["outcome"], told["code"]) == ("failed", "NODE_TAKEN")
    assert "within 30 s: needs 1 GPU on node-a" in told["message"]
    assert here.killed == ["ModelActor:m:2"]


def test_one_that_was_starting_before_is_never_taken_back(here: World) -> None:
    here.has_worker = False
    told = wait_worker(REPLICA, here.handle("ModelActor:m:2"), lambda: False)
    assert told is not None
    assert (told["outcome"], told["code"]) == ("starting", "NO_WORKER")
    assert "fleetctl evict m/2" in told["message"]
    assert here.killed == []


def test_a_constructor_that_failed_tells_the_engines_last_words_and_nothing_is_killed(here: World) -> None:
    words = "code 3; last words: no weights"
    here.states = ["PENDING_CREATION", "DEAD"]
    here.failure = RuntimeError("ray says: RuntimeError: " + encode_failure("ENGINE_EXITED", words))
    told = here.attempt()
    assert (told["outcome"], told["code"], told["message"]) == ("failed", "ENGINE_EXITED", words)
    assert here.killed == []


def test_an_interrupted_run_creates_nothing_more(here: World) -> None:
    told = attempt(dict(REPLICA), set(), {"lab"}, lambda: None, lambda *_, **__: None, lambda: True)
    assert (told["outcome"], told["code"]) == ("skipped", "INTERRUPTED")
    assert here.events == []
