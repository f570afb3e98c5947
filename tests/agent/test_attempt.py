"""One replica from its check to its outcome, in a cluster that the test makes up; Ray itself is not started."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from fleetctl.agent import attempt as attempt_module
from fleetctl.agent import cluster
from fleetctl.agent import create as create_module
from fleetctl.agent.attempt import CONSTRUCTED_S, NO_WORKER_S, WORKER_S, Attempt, Context, EarlierAttempt
from fleetctl.agent.cluster import GONE, ActorRecord
from fleetctl.agent.create import CreatedHere, check
from fleetctl.agent.failure import Refused, encode_failure
from fleetctl.agent.grants import Grants
from fleetctl.agent.mark import earlier_tries

FREE = {"n1": {"GPU": 4.0}}


class Here:
    """What the agent would read from Ray, and what it did: `killed` are the actors it took back."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.names: set[str] = set()
        self.trouble: dict[str, tuple[str, str]] = {}
        self.short: list[str] = []
        self.placed = True
        self.waits_as = "PENDING_CREATION"
        self.states: list[str] = ["ALIVE"]
        self.fleet = "lab"
        self.place: dict[str, object] = {"ip": "10.0.0.7", "port": 7001}
        self.other_places: list[dict[str, object]] = []
        self.constructed = True
        self.death = ""
        self.evicted = False
        self.kept: tuple[str, str] | None = None
        self.granted = True
        self.group_granted_at = 0.0
        self.answers = True
        self.lock_held = True
        self.killed: list[str] = []
        self.events: list[str] = []
        for name, stand_in in {
            "taken_names": lambda: set(self.names), "node_trouble": self.trouble.get,
            "shortfalls": lambda _: list(self.short), "actor_record": lambda _: self.record(),
            "group_is_granted": lambda _: self.now >= self.group_granted_at,
        }.items():
            monkeypatch.setattr(cluster, name, stand_in)
        monkeypatch.setattr(attempt_module, "create", self.create)
        monkeypatch.setattr(attempt_module, "kept_failure", lambda _: self.kept)
        monkeypatch.setattr(Grants, "may_be_granted", lambda *_: self.granted)
        monkeypatch.setattr(create_module, "ray", SimpleNamespace(
            kill=lambda handle, **_: self.killed.append(handle.name)))
        exceptions = SimpleNamespace(GetTimeoutError=TimeoutError)
        monkeypatch.setattr(attempt_module, "ray", SimpleNamespace(
            get=self.get, get_actor=self.handle, exceptions=exceptions,
            wait=lambda refs, timeout: (refs, []) if self.answers else ([], refs)))

    def record(self) -> ActorRecord:
        """The actor's record; its states follow one another, one a look, and the last one stays."""
        if not self.placed:
            return ActorRecord(self.waits_as, False, "", "")
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        report = {"fleet": self.fleet, "members": [self.place, *self.other_places]}
        told = json.dumps(report) if state == "ALIVE" and self.constructed else ""
        return ActorRecord(state, True, told, self.death if state == "DEAD" else "", killed=self.evicted)

    def handle(self, name: str) -> Any:
        return SimpleNamespace(name=name, _actor_id=SimpleNamespace(hex=lambda: "ab"),
                               __ray_ready__=SimpleNamespace(remote=lambda: "ready"))

    def create(self, replica: dict[str, Any]) -> CreatedHere:
        self.events.append("created")
        name = f"ModelActor:{replica['model']}:{replica['replicaId']}"
        return CreatedHere(name, self.handle(name), "ab", "1 GPU on node-a", FREE, 0)

    def get(self, _: object, **__: object) -> None:
        if not self.answers:
            raise TimeoutError

    def context(self) -> Context:
        lock: Any = SimpleNamespace(still_held=lambda: self.lock_held)
        return Context(lambda _: set(), {"lab"}, lock, Grants(), lambda kind, *_, **__: self.events.append(kind),
                       lambda: self.now)

    def attempt(self, **more: Any) -> Attempt:
        return Attempt({**REPLICA, **more}, self.context())

    def run(self, attempt: Attempt, step_s: float = 0.25, longest_s: float = 2_000.0) -> dict[str, Any]:
        """Step until there is an outcome; time passes between the steps alone."""
        while attempt.result is None:
            attempt.step()
            self.now += step_s
            assert self.now < longest_s, "no outcome"
        return attempt.result


MEMBER = {"nodeId": "n1", "node": "node-a", "gpus": 10_000, "cpus": 0, "memory": 0}
REPLICA = {"id": "m/2", "model": "m", "replicaId": 2, "wanted": 3, "specHash": "h", "fleet": "lab",
           "lifecycle": {"schedulingTimeout": 30, "startupTimeout": 900, "restartMax": 5, "restartBackoff": 10},
           "members": [MEMBER]}


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Here:
    return Here(monkeypatch)


def refusal(not_counted: frozenset[int] = frozenset()) -> tuple[str, str]:
    with pytest.raises(Refused) as caught:
        check(REPLICA, set(not_counted))
    return caught.value.code, str(caught.value)


def test_what_the_plan_says_still_holds(here: Here) -> None:
    here.names = {"ModelActor:m:0", "ModelActor:m:1", "ModelActor:other:2", "ModelActor:m:x:2"}
    check(REPLICA, set())


def test_a_name_exists_once(here: Here) -> None:
    here.names = {"ModelActor:m:2"}
    assert refusal() == ("NAME_TAKEN", "ModelActor:m:2 exists already")


def test_nothing_is_created_beyond_the_target(here: Here) -> None:
    here.names = {"ModelActor:m:0", "ModelActor:m:1", "ModelActor:m:7"}
    assert refusal() == ("TARGET_REACHED", "3 of 3 are already live")
    check(REPLICA, {7})


@pytest.mark.parametrize("foreign", ["007", "\u00b2", "+1", "1_0", "9" * 19, "", " 1"])
def test_a_name_that_is_none_of_ours_does_not_count_as_live(here: Here, foreign: str) -> None:
    here.names = {"ModelActor:m:0", "ModelActor:m:1", f"ModelActor:m:{foreign}"}
    check(REPLICA, set())


def test_agent_and_inventory_read_names_by_one_rule() -> None:
    from fleetctl.inventory.marks import parse_actor_name

    for tail in ("0", "7", "10", "999999999999999999", "007", "\u00b2", "9" * 19, "-1", "1 "):
        parsed = parse_actor_name(f"ModelActor:m:{tail}")
        ours = parsed is not None and parsed.replica_id is not None
        assert bool(cluster.live_ids("m", {f"ModelActor:m:{tail}"}, set())) is ours, tail


@pytest.mark.parametrize("trouble", [("NODE_DRAINING", "the node is draining"), ("NODE_GONE", "the node is dead")])
def test_a_node_that_is_gone_or_going_takes_nothing(here: Here, trouble: tuple[str, str]) -> None:
    here.trouble["n1"] = trouble
    told = here.run(here.attempt())
    assert (told["outcome"], told["code"], told["message"]) == ("blocked", trouble[0], f"node-a: {trouble[1]}")
    assert here.events == []


def test_a_node_without_room_is_looked_at_again_before_it_counts(here: Here) -> None:
    here.short = ["node-a has 0 GPU free, 1 needed"]
    attempt = here.attempt()
    attempt.step()
    assert attempt.result is None
    told = here.run(attempt)
    assert (told["outcome"], told["code"], told["message"]) == ("blocked", "NODE_TAKEN", here.short[0])
    assert here.now >= attempt_module.SHORTFALL_S
    assert (here.events, here.killed) == ([], [])


def test_a_shortfall_that_passes_is_none(here: Here) -> None:
    here.short = ["node-a has 0 GPU free, 1 needed"]
    attempt = here.attempt()
    attempt.step()
    here.short = []
    assert here.run(attempt)["outcome"] == "ready"


def test_a_replica_that_becomes_ready_says_where_it_answers(here: Here) -> None:
    attempt = here.attempt()
    told = here.run(attempt)
    assert (told["outcome"], told["address"], told["nodes"]) == ("ready", "10.0.0.7:7001", ["node-a"])
    assert here.events == ["created", "replicaCreated"]
    assert attempt.granted
    assert here.killed == []


def test_a_replica_of_which_several_members_serve_says_where_each_answers(here: Here) -> None:
    here.other_places = [{"ip": "10.0.0.8", "port": 7002, "rank": 1}, {"ip": "fe80::1", "port": 7003, "rank": 0}]
    told = here.run(here.attempt())
    assert (told["address"], told["addresses"]) == ("10.0.0.7:7001", ["10.0.0.7:7001", "[fe80::1]:7003"])


def test_a_replica_beyond_the_target_is_skipped(here: Here) -> None:
    here.names = {"ModelActor:m:0", "ModelActor:m:1", "ModelActor:m:7"}
    told = here.run(here.attempt())
    assert (told["outcome"], told["code"]) == ("skipped", "TARGET_REACHED")
    assert here.events == []


def test_nothing_is_created_without_the_lock(here: Here) -> None:
    here.lock_held = False
    told = here.run(here.attempt())
    assert (told["outcome"], told["code"]) == ("skipped", "LOCK_LOST")
    assert here.events == []


def test_a_replica_that_another_run_created_is_awaited_and_not_doubled(here: Here) -> None:
    here.names = {"ModelActor:m:2"}
    told = here.run(here.attempt())
    assert (told["outcome"], told["nodes"]) == ("ready", [])
    assert "created" not in here.events


def test_a_name_that_another_fleet_took_meanwhile_is_not_counted_as_ours(here: Here) -> None:
    here.names, here.fleet = {"ModelActor:m:2"}, "theirs"
    told = here.run(here.attempt())
    assert (told["outcome"], told["code"]) == ("blocked", "CLAIMED_BY_FLEET")
    assert "theirs" in told["message"]


def test_a_replica_that_is_being_restarted_is_waited_for_and_not_called_failed(here: Here) -> None:
    here.states = ["PENDING_CREATION", "RESTARTING", "RESTARTING", "ALIVE"]
    assert here.run(here.attempt())["outcome"] == "ready"


def test_alive_counts_only_once_the_constructor_has_returned(here: Here) -> None:
    here.states, here.constructed = ["PENDING_CREATION", "ALIVE", "DEAD"], False
    here.death = f"ray says: RuntimeError: {encode_failure('ENGINE_EXITED', 'no weights')}"
    told = here.run(here.attempt())
    assert (told["outcome"], told["code"], told["message"]) == ("failed", "ENGINE_EXITED", "no weights")


def test_alive_for_good_without_a_constructor_that_returned_is_said_soon(here: Here) -> None:
    here.constructed = False
    told = here.run(here.attempt())
    assert (told["outcome"], told["code"]) == ("failed", "NEVER_CONSTRUCTED")
    assert "fleetctl evict m/2" in told["message"]
    assert here.now <= 2 * CONSTRUCTED_S
    assert here.killed == []


def test_time_without_an_answer_of_ray_is_no_time_without_a_constructor(here: Here) -> None:
    attempt = here.attempt()
    attempt.step()
    here.now += 10 * CONSTRUCTED_S  # the head was restarted; it takes the replica for ready until that ends itself
    here.states, here.constructed = ["ALIVE"], False
    attempt.step()
    here.states, here.constructed = ["RESTARTING", "RESTARTING", "ALIVE"], True
    assert here.run(attempt)["outcome"] == "ready"


@pytest.mark.parametrize(("state", "trouble", "told"), [
    ("ALIVE", None, None),
    ("RESTARTING", None, ("starting", "STILL_STARTING", "it was ready, went down and starts again")),
    ("DEAD", None, ("failed", "REPLICA_DIED", "it was ready and went down: worker died")),
    ("DEAD", ("NODE_GONE", "gone"), ("failed", "NODE_GONE", "it was ready and went down: node-a: gone")),
    ("DEAD", ("NODE_DRAINING", "draining"), ("failed", "REPLICA_DIED", "it was ready and went down: worker died")),
])
def test_what_was_ready_may_have_gone_down_since(
    here: Here, state: str, trouble: tuple[str, str] | None, told: tuple[str, str, str] | None
) -> None:
    attempt = here.attempt()
    assert here.run(attempt)["outcome"] == "ready"
    here.states, here.death = [state], "worker died\nmore"
    if trouble:
        here.trouble["n1"] = trouble
    found = attempt.since_ready()
    assert (found and (found["outcome"], found["code"], found["message"])) == told


def test_what_was_ready_and_was_evicted_since_has_not_failed(here: Here) -> None:
    attempt = here.attempt()
    assert here.run(attempt)["outcome"] == "ready"
    here.states, here.death, here.evicted = ["DEAD"], "killed by `ray.kill`", True
    assert attempt.since_ready() is None


def test_a_start_that_ended_with_its_node_says_so(here: Here) -> None:
    attempt = here.attempt()
    here.states = ["PENDING_CREATION"]
    attempt.step()
    here.trouble["n1"], here.states = ("NODE_GONE", "the node is dead or gone"), ["DEAD"]
    here.death = "The node specified via NodeAffinitySchedulingStrategy doesn't exist any more"
    told = here.run(attempt)
    assert (told["code"], told["message"]) == ("NODE_GONE", "node-a: the node is dead or gone")


def test_one_that_is_up_and_does_not_answer_is_ready_and_says_so(here: Here) -> None:
    here.answers = False
    told = here.run(here.attempt())
    assert (told["outcome"], told["code"]) == ("ready", "NOT_ANSWERING")


def test_a_start_on_cards_that_nobody_could_look_at_is_told(here: Here) -> None:
    here.place["unchecked"] = "no NVIDIA driver was found on this node"
    told = here.run(here.attempt())
    assert (told["outcome"], told["code"]) == ("ready", "CARDS_UNCHECKED")
    assert "no NVIDIA driver" in told["message"]


def test_a_gang_gives_its_turn_away_only_when_its_placement_group_has_its_cards(here: Here) -> None:
    here.states, here.group_granted_at = ["PENDING_CREATION"], 5.0
    attempt = here.attempt(members=[MEMBER, MEMBER])
    while not attempt.granted:
        attempt.step()
        granted_at = here.now
        here.now += 0.25
    assert granted_at == 5.0
    here.states = ["ALIVE"]
    assert here.run(attempt)["outcome"] == "ready"


def test_a_gang_that_ended_itself_by_force_tells_the_reason_it_has_kept(here: Here) -> None:
    here.states, here.kept = ["DEAD"], ("MEMBER_SILENT", "a member did not answer")
    here.death = "The actor is dead because it was killed by `ray.kill`."
    told = here.run(here.attempt(members=[MEMBER, MEMBER]))
    assert (told["code"], told["message"]) == here.kept


def test_a_replica_that_holds_nothing_and_gets_nothing_is_taken_back_with_the_arithmetic(here: Here) -> None:
    here.placed, here.granted = False, False
    attempt = here.attempt()
    attempt.step()
    here.short = ["node-a has 0 GPU free, 1 needed"]
    told = here.run(attempt)
    assert (told["outcome"], told["code"]) == ("failed", "NODE_TAKEN")
    assert "within 30 s: needs 1 GPU on node-a; node-a has 0 GPU free" in told["message"]
    assert here.killed == ["ModelActor:m:2"]


def test_a_replica_that_waits_for_room_says_so_once_before_it_is_taken_back(here: Here) -> None:
    here.placed, here.granted = False, False
    attempt = here.attempt()
    attempt.step()
    here.short = ["node-a has 0 GPU free, 1 needed"]
    while here.now < 20:
        here.now += 1
        attempt.step()
    assert (attempt.result, here.events) == (None, ["created", "replicaCreated", "roomAwaited"])


@pytest.mark.parametrize("short", [[], ["node-a has 0 GPU free, 1 needed"]], ids=["room", "its own grant"])
def test_a_replica_that_may_be_granted_is_never_taken_back(here: Here, short: list[str]) -> None:
    here.placed, here.granted = False, True
    attempt = here.attempt()
    attempt.step()
    here.short = short
    while here.now < 2 * 30:
        attempt.step()
        here.now += 1
    assert attempt.result is None
    here.placed = True
    assert here.run(attempt)["outcome"] == "ready"
    assert (here.killed, here.events) == ([], ["created", "replicaCreated"])


def test_a_worker_that_never_starts_is_reported_and_left_alone(here: Here) -> None:
    here.placed = False
    told = here.run(here.attempt())
    assert (told["outcome"], told["code"]) == ("starting", "NO_WORKER")
    assert here.now >= WORKER_S
    assert here.killed == []


def test_time_in_which_ray_did_not_answer_is_no_time_that_ray_had(here: Here) -> None:
    """The GCS is away for longer than the scheduling timeout: the first look after it must not take anything back."""
    here.placed, here.granted = False, False
    attempt = here.attempt()
    attempt.step()
    here.short = ["node-a has 0 GPU free, 1 needed"]
    here.now += 400
    attempt.step()
    assert attempt.result is None
    here.placed = True
    assert here.run(attempt)["outcome"] == "ready"
    assert here.killed == []


def test_one_that_was_starting_before_is_never_taken_back(here: Here) -> None:
    here.placed, here.granted, here.short = False, False, ["full"]
    told = here.run(EarlierAttempt(dict(REPLICA), here.context()))
    assert (told["outcome"], told["code"]) == ("starting", "NO_WORKER")
    assert "fleetctl evict m/2" in told["message"]
    assert here.killed == []


def test_one_that_restarts_and_whose_card_somebody_took_is_not_waited_for_until_its_timeout(here: Here) -> None:
    here.placed, here.waits_as = False, "RESTARTING"
    told = here.run(EarlierAttempt(dict(REPLICA), here.context()))
    assert (told["outcome"], told["code"]) == ("starting", "NO_WORKER")
    assert here.now < 2 * NO_WORKER_S


def test_one_that_was_starting_before_is_awaited(here: Here) -> None:
    here.states = ["PENDING_CREATION", "PENDING_CREATION", "ALIVE"]
    assert here.run(EarlierAttempt(dict(REPLICA), here.context()))["outcome"] == "ready"
    assert here.events == []


def test_a_constructor_that_failed_tells_the_engines_last_words_and_nothing_is_killed(here: Here) -> None:
    words = "code 3; last output: no weights"
    here.states = ["PENDING_CREATION", "DEAD"]
    here.death = f"ray says: RuntimeError: {encode_failure('ENGINE_EXITED', words)}"
    told = here.run(here.attempt())
    assert (told["outcome"], told["code"], told["message"]) == ("failed", "ENGINE_EXITED", words)
    assert here.killed == []


class Search:
    """Stands in for the search for clean cards: what it finds, after one look at which it is still on its way."""

    found: ClassVar[list[bool]] = []
    released: ClassVar[int] = 0

    def __init__(self, members: list[dict[str, Any]]) -> None:
        self._looks: list[bool | None] = [None, Search.found.pop(0)]

    def step(self) -> bool | None:
        return self._looks.pop(0)

    def free_the_clean(self) -> None:
        assert self._looks == []

    def release(self) -> None:
        Search.released += 1


@pytest.fixture
def dirty(here: Here, monkeypatch: pytest.MonkeyPatch) -> Here:
    """Ray hands out a dirty card the first time, and a clean one after that."""
    monkeypatch.setattr(attempt_module, "CleanCards", Search)
    Search.found, Search.released = [True, True, True], 0
    here.death = f"ray says: RuntimeError: {encode_failure('CARD_IN_USE', 'card 0: 20480Mi by process 7')}"
    here.states = ["PENDING_CREATION", "DEAD", "PENDING_CREATION", "ALIVE"]
    return here


def test_a_replica_on_a_dirty_card_is_created_again_while_that_one_is_held(dirty: Here) -> None:
    attempt = dirty.attempt()
    assert dirty.run(attempt)["outcome"] == "ready"
    assert dirty.events == ["created", "replicaCreated", "cardInUse", "created", "replicaCreated"]
    assert Search.released == 1, "once the replica has its own"
    assert earlier_tries(attempt.replica) == {"earlierTries": ["ab"]}, "so that its end counts as no failure"
    assert dirty.killed == []


def test_a_replica_on_a_card_that_cools_is_created_again_too(dirty: Here) -> None:
    dirty.death = f"ray says: RuntimeError: {encode_failure('CARD_COOLING', 'card 0 cools')}"
    assert dirty.run(dirty.attempt())["outcome"] == "ready"
    Search.found, dirty.states = [False], ["PENDING_CREATION", "DEAD"]
    assert dirty.run(dirty.attempt())["code"] == "CARD_COOLING"


def test_it_is_not_tried_for_ever(dirty: Here) -> None:
    dirty.states = ["PENDING_CREATION", "DEAD"] * 9
    told = dirty.run(dirty.attempt())
    assert (told["outcome"], told["code"], told["message"]) == (
        "failed", "CARD_IN_USE", "card 0: 20480Mi by process 7")
    assert dirty.events.count("created") == 3
    assert Search.released == 2


def test_without_a_clean_card_it_fails_at_once_and_says_so(dirty: Here) -> None:
    Search.found = [False]
    told = dirty.run(dirty.attempt())
    assert told["message"] == "card 0: 20480Mi by process 7; no other card of the node is free and clean"
    assert (dirty.events.count("created"), Search.released) == (1, 1)


def test_another_apply_that_has_begun_meanwhile_is_not_disturbed(dirty: Here) -> None:
    attempt = dirty.attempt()
    while "cardInUse" not in dirty.events:
        attempt.step()
    assert not attempt.granted, "while it looks, the lock is not released"
    dirty.lock_held = False
    assert dirty.run(attempt)["code"] == "CARD_IN_USE"
    assert (dirty.events.count("created"), Search.released) == (1, 1)


@pytest.mark.parametrize("attempt", ["gang", "earlier"])
def test_only_a_replica_of_one_member_that_this_run_created_is_created_again(dirty: Here, attempt: str) -> None:
    dirty.states = ["PENDING_CREATION", "DEAD"]
    tried = dirty.attempt(members=[MEMBER, MEMBER]) if attempt == "gang" else EarlierAttempt(REPLICA, dirty.context())
    assert dirty.run(tried)["code"] == "CARD_IN_USE"
    assert "cardInUse" not in dirty.events


def test_an_actor_without_a_record_is_dead(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "actor_record", lambda _: GONE)
    told = here.run(here.attempt())
    assert (told["outcome"], told["code"], told["message"]) == ("failed", "REPLICA_DIED", "Ray gave no reason")


def test_one_whose_node_goes_before_it_has_a_worker_tells_so(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another node may cure that, so the run plans again; REPLICA_DIED would have been the end of it."""
    def create(replica: dict[str, Any]) -> CreatedHere:
        here.placed, here.waits_as = False, "DEAD"
        here.trouble["n1"] = ("NODE_GONE", "the node is dead or gone")
        return here.create(replica)

    monkeypatch.setattr(attempt_module, "create", create)
    told = here.run(here.attempt())
    assert (told["outcome"], told["code"], told["message"]) == (
        "failed", "NODE_GONE", "node-a: the node is dead or gone")


def test_an_unforeseen_error_is_this_replicas_alone(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> set[str]:
        raise OSError("the table is gone\nwith details")

    monkeypatch.setattr(cluster, "taken_names", broken)
    told = here.run(here.attempt())
    assert (told["outcome"], told["code"], told["message"]) == (
        "failed", "AGENT_ERROR", "OSError: the table is gone")
