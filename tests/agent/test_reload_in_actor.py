"""Update in place, in the actor: what runs before, during and after a reload, and after a restart."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from ray_keys import Keys

from fleetctl.agent import gang, reload
from fleetctl.agent import replica as replica_module
from fleetctl.agent import report as failure_module
from fleetctl.agent.budget import RestartsUsed
from fleetctl.agent.messages import (
    HttpCall,
    Json,
    Lifecycle,
    Member,
    Place,
    PlannedWeights,
    ReloadMember,
    ReloadRequest,
    Replica,
    ServedWeights,
)
from fleetctl.agent.reload import UNKNOWN_SPEC, Reloading, as_reloaded
from fleetctl.agent.report import StartFailed
from fleetctl.agent.wire import in_parts

FORMER, NEW = PlannedWeights("a", ()), PlannedWeights("b", ())
FORMERLY_SERVED, NEWLY_SERVED = ServedWeights("a", None), ServedWeights("b", None)
MEMBERS = tuple(Member("g", 0, "Standalone", rank, "n", "a", weights=FORMER) for rank in (0, 1))
REPLICA = Replica("m/0", "m", 0, Lifecycle(60.0), "old", members=MEMBERS)
PLACES = [Place(group="g", rank=rank, node_id="n", ip="192.0.2.1", port=7 + rank, weights=FORMERLY_SERVED)
          for rank in (0, 1)]
REQUEST = ReloadRequest("old", "new", HttpCall("POST", "/load"), 60.0,
                        tuple(ReloadMember("g", 0, rank, NEW) for rank in (0, 1)))


class Steps:
    """The members' handles and the steps they ran; `failing` = steps that fail."""

    def __init__(self, *failing: str) -> None:
        self.failing, self.taken, self.go = failing, list[tuple[str, list[int]]](), threading.Event()
        self.go.set()

    def __call__(self, step: str, given: Any) -> dict[int, Any]:
        self.go.wait(30)
        self.taken.append((step, sorted(given)))
        if step in self.failing:
            raise StartFailed("RELOAD_FAILED", "no")
        return dict.fromkeys(given, NEWLY_SERVED if step == "serve_new" else None)


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> Keys:
    monkeypatch.setattr(reload, "ray", SimpleNamespace(get_runtime_context=lambda: SimpleNamespace(
        get_actor_id=lambda: "x")))
    monkeypatch.setattr(reload.node, "restart_count", lambda: 2)
    return Keys().install(monkeypatch, reload)


def ended(reloading: Reloading) -> Json:
    deadline = time.monotonic() + 120
    while reloading.state()["state"] == "reloading" and time.monotonic() < deadline:
        time.sleep(0.01)
    return reloading.state()


def test_all_members_fetch_before_leaders_reload_and_a_restart_keeps_the_reloaded_spec(keys: Keys) -> None:
    steps = Steps()
    reloading = Reloading(REPLICA, PLACES, steps)
    reloading.begin(REQUEST)
    found = ended(reloading)
    assert steps.taken == [("fetch_new", [0, 1]), ("hold_liveness", [0, 1]), ("reload_engine", [0]),
                           ("hold_liveness", [0, 1]), ("serve_new", [0, 1])]
    assert (found["state"], found["restarts"], found["places"][1]["weights"]["artifact"]) == ("done", 2, "b")
    assert found["places"][1]["weights"]["port"] is None, "agents of the last release read it even if nothing is served"
    assert [place.weights for place in reloading.places] == [NEWLY_SERVED] * 2
    assert reloading.replica.spec_hash == "new"
    again = as_reloaded(REPLICA)  # Ray passes the original arguments to the constructor
    assert (again, again.members[1].weights) == (reloading.replica, NEW)
    reloading.begin(REQUEST)
    assert ended(reloading)["state"] == "done"
    assert len(steps.taken) == 5  # it already has these weights


@pytest.mark.parametrize("failing", ["fetch_new", "reload_engine"])
def test_after_a_failure_the_replica_and_its_restart_have_the_earlier_spec(keys: Keys, failing: str) -> None:
    steps = Steps(failing)
    reloading = Reloading(REPLICA, PLACES, steps)
    reloading.begin(REQUEST)
    found = ended(reloading)
    assert (found["state"], found["code"], found["specHash"]) == ("failed", "RELOAD_FAILED", "new")
    assert (reloading.replica, reloading.places, steps.taken[-1]) == (REPLICA, PLACES, ("drop_new", [0, 1]))
    assert as_reloaded(REPLICA) == REPLICA
    refusing = REPLICA._replace(members=tuple(member._replace(cooling_cards=("GPU-a",)) for member in MEMBERS))
    assert as_reloaded(refusing) == REPLICA, "cards that were cooling at creation may be good by now"


def test_a_second_request_does_not_disturb_the_first(keys: Keys) -> None:
    steps = Steps()
    reloading = Reloading(REPLICA, PLACES, steps)
    steps.go.clear()
    reloading.begin(REQUEST)
    reloading.begin(REQUEST._replace(spec_hash="other"))
    assert reloading.state() == {"state": "reloading", "specHash": "new"}
    steps.go.set()
    assert ended(reloading)["specHash"] == reloading.replica.spec_hash == "new"


def test_after_a_failed_reload_all_engines_load_their_former_weights_again_by_the_same_requests(keys: Keys) -> None:
    steps, given = Steps("reload_engine"), list[Any]()
    calls = (HttpCall("POST", "/pause"), HttpCall("POST", "/load"), HttpCall("POST", "/resume"))

    def taking(step: str, arguments: Any) -> dict[int, Any]:
        given.extend(arguments[0][:1] if step.endswith("_engine") else [])
        return steps(step, arguments)

    reloading = Reloading(REPLICA, PLACES, taking)
    reloading.begin(REQUEST._replace(requests=calls))
    found = ended(reloading)
    assert (found["runs"], found["code"], found["reason"]) == (
        "old", "RELOAD_FAILED", "no; it has loaded its former weights again")
    assert [step for step, _ in steps.taken] == [
        "fetch_new", "hold_liveness", "reload_engine", "roll_back_engine", "hold_liveness", "drop_new"]
    assert given == [calls, calls]
    assert reloading.replica == REPLICA


def test_an_engine_that_ended_is_not_asked_for_its_former_weights(keys: Keys) -> None:
    taken: list[str] = []

    def taking(step: str, given: Any) -> dict[int, Any]:
        taken.append(step)
        if step == "reload_engine":
            raise StartFailed("RELOAD_ENDED", "gone")
        return dict.fromkeys(given)

    reloading = Reloading(REPLICA, PLACES, taking)
    reloading.begin(REQUEST)
    assert (ended(reloading)["code"], "roll_back_engine" in taken) == ("RELOAD_ENDED", False)


def test_after_a_failed_reload_request_the_spec_is_unknown_and_any_request_tries_again(
    keys: Keys
) -> None:
    steps = Steps("reload_engine", "roll_back_engine")
    reloading = Reloading(REPLICA, PLACES, steps)
    reloading.begin(REQUEST)
    failed = ended(reloading)
    assert failed["runs"] is None
    assert failed["reason"] == "no; and it did not load its former weights again: no"
    steps.failing, back = (), REQUEST._replace(
        spec_hash="old", members=tuple(ReloadMember("g", 0, rank, FORMER) for rank in (0, 1)))
    reloading.begin(back)
    assert ended(reloading)["state"] == "refused"  # from a plan that does not know of the failure
    reloading.begin(back._replace(runs=UNKNOWN_SPEC))
    assert ended(reloading)["state"] == "done"
    assert [step for step, _ in steps.taken].count("reload_engine") == 2


def test_a_failure_before_the_request_changes_nothing_and_without_time_no_request_is_sent(keys: Keys) -> None:
    steps = Steps("fetch_new")
    reloading = Reloading(REPLICA, PLACES, steps)
    reloading.begin(REQUEST)
    assert ended(reloading)["runs"] == "old"
    steps.failing = ()
    reloading.begin(REQUEST._replace(startup_timeout=0.5))
    found = ended(reloading)
    assert (found["code"], found["runs"]) == ("RELOAD_FAILED", "old")
    assert "reload_engine" not in [step for step, _ in steps.taken]


def test_a_request_of_an_older_plan_does_not_restore_former_weights(keys: Keys) -> None:
    steps = Steps()
    reloading = Reloading(REPLICA, PLACES, steps)
    for spec, state in (("newest", "done"), ("new", "refused")):
        reloading.begin(REQUEST._replace(spec_hash=spec))
        assert ended(reloading)["state"] == state
    assert reloading.replica.spec_hash == "newest"


@pytest.mark.parametrize("kind", [replica_module.ModelActor, gang.GangCoordinator])
def test_a_restart_that_cannot_read_its_last_reload_ends_so_that_ray_retries(
    monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    def unreadable(_: object) -> None:
        raise OSError("no answer")

    monkeypatch.setattr(replica_module, "as_reloaded", unreadable)
    monkeypatch.setattr(replica_module.node, "was_restarted", lambda: True)
    kept = list[StartFailed]()
    monkeypatch.setattr(replica_module, "Restarts", lambda *_: SimpleNamespace(count=lambda: None, ended=kept.append))
    for needs_ray in ("_give_back", "_require_nodes", "_watch_record"):
        monkeypatch.setattr(kind, needs_ray, lambda _: None, raising=False)
    monkeypatch.setattr(replica_module, "log_of", lambda _: SimpleNamespace(path="log", end=lambda _: None))
    monkeypatch.setattr(failure_module.os, "_exit", lambda _: None)
    monkeypatch.setattr(failure_module.threading, "Timer", lambda *_: SimpleNamespace(start=lambda: None))
    with pytest.raises(SystemExit) as end:
        kind(*in_parts(REPLICA))
    assert "START_ERROR" in end.value.unexpected_error_traceback
    assert [failure.code for failure in kept] == ["START_ERROR"]


@pytest.mark.parametrize("kind", [replica_module.ModelActor, gang.GangCoordinator])
def test_a_restart_for_which_none_is_left_is_final_with_the_reason_of_the_end_before(
    monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    """It raises: Ray restarts neither a constructor that does, nor anything else a second time."""
    def none_left() -> None:
        raise RestartsUsed("ENGINE_EXITED", "all used; it exited", [Place(node_id="n7", gpu_uuids=("GPU-a",))])

    monkeypatch.setattr(replica_module.node, "was_restarted", lambda: True)
    monkeypatch.setattr(replica_module, "Restarts", lambda *_: SimpleNamespace(count=none_left))
    for needs_ray in ("_give_back", "_require_nodes", "_watch_record"):
        monkeypatch.setattr(kind, needs_ray, lambda _: None, raising=False)
    monkeypatch.setattr(gang, "keep_failure", lambda *_: None)
    monkeypatch.setattr(gang.threading, "Timer", lambda *_: SimpleNamespace(start=lambda: None))
    monkeypatch.setattr(gang, "ray", SimpleNamespace(get_runtime_context=lambda: SimpleNamespace(
        get_actor_id=lambda: "x")))
    monkeypatch.setattr(replica_module, "log_of", lambda _: SimpleNamespace(path="log", end=lambda _: None))
    with pytest.raises(RuntimeError) as final:
        kind(*in_parts(REPLICA))
    found = failure_module.decode_failure(str(final.value))
    assert (found.code, found.message, found.node_ids, found.gpu_uuids) == (
        "ENGINE_EXITED", "all used; it exited", ("n7",), ("GPU-a",))


def test_a_failure_that_no_agent_has_read_is_the_reply_to_the_next_request(keys: Keys) -> None:
    steps = Steps("reload_engine")
    reloading = Reloading(REPLICA, PLACES, steps)
    reloading.begin(REQUEST)
    assert reloading._busy.acquire(timeout=300)  # its reload has ended
    reloading._busy.release()
    reloading.begin(REQUEST._replace(runs=UNKNOWN_SPEC))
    assert ended(reloading)["state"] == "failed"
    assert [step for step, _ in steps.taken].count("reload_engine") == 1
    reloading.begin(REQUEST._replace(runs=UNKNOWN_SPEC))
    assert ended(reloading)["state"] == "failed"
    assert [step for step, _ in steps.taken].count("reload_engine") == 2
