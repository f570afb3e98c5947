"""How starts that a watch has begun end: each is told once, with model, reason and how long it took."""

from __future__ import annotations

from typing import Any

import pytest

from fleetctl.documents.events import ReplicaOutcome
from fleetctl.documents.inventory import Inventory, Node
from fleetctl.watch.watcher import Ending, Starts

BEGUN, REVISION = "2026-03-04T12:00:00Z", "0123456789abcdef"
MODEL, SHORT = "org/m", REVISION[:10]
GONE = "gone after 41s: evicted, lost with its node, or Ray no longer knows how it ended"


def seen(at: str = "2026-03-04T12:00:41Z", *replicas: dict[str, Any], failures: Any = (), complete: bool = True,
         ) -> Inventory:
    """An inventory with these replicas of the fleet; `failures` = id, code and time of each, and more fields."""
    return Inventory.model_validate({
        "observedAt": at, "source": "x", "complete": complete, "nodes": [],
        "replicas": [{"model": MODEL, "fleet": "lab", "replicaId": number, "state": "ALIVE", **one}
                     for number, one in enumerate(replicas)],
        "failures": [{"model": MODEL, "replicaId": number, "code": code, "message": "{no} memory", "at": when,
                      **(more[0] if more else {})} for number, code, when, *more in failures]})


def begun(*ids: int, model: str = MODEL, starts: Starts | None = None, before: Inventory | None = None,
          **more: Any) -> Starts:
    starts = starts or Starts()
    rows = [ReplicaOutcome(model=model, replica_id=number, outcome="starting") for number in ids]
    assert starts.begin(more.pop("revision", REVISION), before or seen(BEGUN), rows, **more)
    return starts


STARTING = {"state": "PENDING_CREATION"}


def test_a_run_ends_with_a_last_word_when_all_that_it_began_is_ready() -> None:
    starts = begun(0, 1)
    assert starts.end(seen(BEGUN, STARTING, STARTING), "lab") == []
    assert starts.end(seen("2026-03-04T12:00:20Z", {}, STARTING), "lab") == [
        Ending(f"{SHORT}: org/m/0: ready after 20s")]
    assert starts.end(seen("2026-03-04T12:01:05Z", {}, {}), "lab") == [
        Ending(f"{SHORT}: org/m/1: ready after 1m05s"), Ending("", "fine")]
    assert starts.end(seen("2026-03-04T12:02:05Z", {}, {}), "lab") == []


def test_several_that_end_at_once_share_a_line() -> None:
    assert begun(0, 1, 2).end(seen(BEGUN, {}, {}, {}), "lab") == [
        Ending(f"{SHORT}: org/m: 3 ready after 0s"), Ending("", "fine")]


def test_a_crash_is_told_with_model_and_reason_once_for_all_its_retries() -> None:
    starts = begun(0)
    telling = (f"{SHORT}: org/m/0: failed after 9s: ENGINE_EXITED: {{no}} memory; it is tried again until the model "
               "cools down")
    assert starts.end(seen(failures=[(0, "ENGINE_EXITED", "2026-03-04T12:00:09Z")]), "lab") == [
        Ending(telling), Ending("", "failed")]
    for number, code, told in ((1, "ENGINE_EXITED", 0), (2, "STARTUP_TIMEOUT", 1)):
        begun(number, starts=starts)
        found = starts.end(seen(failures=[(number, code, "2026-03-04T12:00:20Z")]), "lab")
        assert [bool(one.text) for one in found] == [True] * told + [False]
        assert found[-1].of_run == "failed"
    begun(3, starts=starts, revision="another")
    assert starts.end(seen(failures=[(3, "ENGINE_EXITED", "2026-03-04T12:00:20Z")]), "lab")[0].text
    starts = begun(0, starts=begun(0))
    assert starts.end(seen(BEGUN, {}), "lab")[0].text.endswith("ready after 0s")


def test_a_failure_from_before_the_start_is_not_its_own() -> None:
    earlier = [(0, "ENGINE_EXITED", "2026-03-04T11:59:59Z")]
    assert begun(0).end(seen(BEGUN, STARTING, failures=earlier), "lab") == []
    [told, _] = begun(0).end(seen(failures=earlier), "lab")
    assert told.text == f"{SHORT}: org/m/0: {GONE}"


@pytest.mark.parametrize(("clock", "after"), [
    ("2026-03-04T09:00:00Z", "41s"), ("2026-03-04T12:00:09Z", "9s"), ("2026-03-04T15:00:00Z", "41s")])
def test_a_failure_on_a_node_with_a_wrong_clock_is_told_and_one_from_before_is_not(clock: str, after: str) -> None:
    earlier, own = (0, "ENGINE_EXITED", "2026-03-04T12:00:20Z", {"actorId": "a1"}), (
        0, "STARTUP_TIMEOUT", clock, {"actorId": "a2", "fleet": "lab"})
    before = seen(BEGUN, failures=[earlier])
    [told, _] = begun(0, before=before).end(seen(failures=[earlier, own]), "lab")
    assert told.text.startswith(f"{SHORT}: org/m/0: failed after {after}: STARTUP_TIMEOUT: ")
    [told, _] = begun(0, before=before).end(seen(failures=[earlier]), "lab")
    assert told.text == f"{SHORT}: org/m/0: {GONE}"


def test_a_failure_of_another_fleet_under_the_same_name_is_not_its_own() -> None:
    other = (0, "ENGINE_EXITED", "2026-03-04T12:00:09Z", {"actorId": "a1", "fleet": "other"})
    assert begun(0).end(seen(failures=[other]), "lab")[0].text == f"{SHORT}: org/m/0: {GONE}"


@pytest.mark.parametrize("clock", ["2026-03-04T09:00:00Z", "2026-03-04T15:00:00Z"])
def test_a_start_on_a_node_with_a_wrong_clock_is_timed_by_the_look(clock: str) -> None:
    assert begun(0).end(seen("2026-03-04T12:00:30Z", {"readyAt": clock}), "lab")[0].text.endswith("ready after 30s")


def test_what_waits_for_a_node_or_restarts_has_not_ended() -> None:
    waiting = ({"state": "DEPENDENCIES_UNREADY"}, STARTING, {"state": "RESTARTING"})
    assert begun(0, 1, 2).end(seen("2026-03-04T13:00:00Z", *waiting), "lab") == []


def test_nothing_is_said_on_an_incomplete_reading() -> None:
    starts = begun(0)
    assert starts.end(seen(complete=False), "lab") == []
    assert len(starts.open) == 1


def test_a_run_of_which_one_is_gone_is_no_success() -> None:
    assert begun(0).end(seen(), "lab")[1] == Ending("", "failed")


def test_a_merge_that_overtakes_another_ends_under_its_own_revision() -> None:
    starts = begun(1, starts=begun(0), revision="fedcba9876543210")
    texts = [one.text for one in starts.end(seen(BEGUN, {}, {}), "lab") if one.text]
    assert texts == [f"{SHORT}: org/m/0: ready after 0s", "fedcba9876: org/m/1: ready after 0s"]


def test_a_new_watch_tells_how_those_of_an_earlier_one_end_and_counts_no_run() -> None:
    starts = Starts()
    starts.adopt(REVISION, seen(BEGUN, {}, STARTING, {"state": "PENDING_CREATION", "fleet": "other"}), "lab")
    assert starts.end(seen("2026-03-04T12:00:30Z", {}, {}), "lab") == [Ending(f"{SHORT}: org/m/1: ready after 30s")]


def test_a_run_that_also_failed_was_counted_when_it_ended() -> None:
    assert begun(0, counts=False).end(seen(BEGUN, {}), "lab") == [Ending(f"{SHORT}: org/m/0: ready after 0s")]


def test_a_replica_that_a_later_run_also_awaits_ends_under_the_revision_that_began_it() -> None:
    starts = begun(0)
    rows = [ReplicaOutcome(model=MODEL, replica_id=number, outcome="starting") for number in (0, 1)]
    assert starts.begin("fedcba9876543210", seen("2026-03-04T12:00:30Z"), rows)
    assert starts.end(seen("2026-03-04T12:01:00Z", {}, STARTING), "lab") == [
        Ending(f"{SHORT}: org/m/0: ready after 1m00s"), Ending("", "fine")]
    assert starts.end(seen("2026-03-04T12:01:30Z", {}, {}), "lab") == [
        Ending("fedcba9876: org/m/1: ready after 1m00s"), Ending("", "fine")]


def test_the_time_is_that_of_the_replica_and_not_of_the_look() -> None:
    ready = {"readyAt": "2026-03-04T12:00:12Z"}
    assert begun(0).end(seen("2026-03-04T12:05:00Z", ready), "lab")[0].text == f"{SHORT}: org/m/0: ready after 12s"


def test_a_lost_replica_is_no_success() -> None:
    lost = {"members": [{"group": "main", "copy": 0, "role": "Standalone", "rank": 0, "nodeId": "n1", "gpus": 1}]}
    found = seen("2026-03-04T12:00:41Z", lost).model_copy(update={"nodes": [
        Node(id="n1", name="n1", ip="192.0.2.1", state="DEAD")]})
    for one in (found, seen("2026-03-04T12:00:41Z", {"constructed": False})):
        assert begun(0).end(one, "lab") == [Ending(f"{SHORT}: org/m/0: {GONE}"), Ending("", "failed")]


def test_a_run_counts_once_all_that_it_awaits_has_ended() -> None:
    starts = begun(0)
    begun(0, starts=starts, revision="fedcba9876543210")
    failed = seen(failures=[(0, "ENGINE_EXITED", "2026-03-04T12:00:09Z")])
    assert [one.of_run for one in starts.end(failed, "lab")] == ["", "failed", "failed"]
