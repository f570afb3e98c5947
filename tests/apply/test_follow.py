"""Following an agent's run: its log becomes events, and problems with the dashboard are reported accurately."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from cluster_stand_in import ClusterStandIn, event, ready, summary

from fleetctl.apply.follow import APPLY, UNREACHABLE_S, RunFollower, parse_line
from fleetctl.documents.events import Event, RunSummary
from fleetctl.errors import ApplyError, ClusterRefused, WaitTimeout
from fleetctl.inventory.client import DashboardClient

VERSION = event(0, "version", "fleetctl agent", version="1.0")
LOCKED = event(1, "lockAcquired", "lock of lab acquired")
READY = event(2, "replicaReady", "m/0: ready", model="m", replicaId=0)
SUMMARY = summary(3, ready("m", 0))
UNAVAILABLE = (503, "Service Unavailable")


class Clock:
    """A clock that only waiting advances; `then` is called with the number of the wait."""

    def __init__(self, then: Callable[[int], object] = lambda _: None) -> None:
        self.now, self.waits, self.then = 0.0, 0, then

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.now += seconds
        self.waits += 1
        self.then(self.waits)


def follow(client: DashboardClient, clock: Clock | None = None, wait_timeout_s: float | None = None) -> list[Event]:
    clock = clock or Clock()
    return list(RunFollower(client, "j", APPLY, wait_timeout_s=wait_timeout_s, clock=clock, sleep=clock.sleep).events())


def types(events: list[Event]) -> list[str]:
    return [one.type for one in events]


def test_events_come_once_and_in_order_until_the_summary(cluster: ClusterStandIn, client: DashboardClient) -> None:
    cluster.add_job("j", ("PENDING", ""), ("RUNNING", VERSION), ("RUNNING", VERSION + LOCKED + READY),
                    ("SUCCEEDED", VERSION + LOCKED + READY + SUMMARY))
    events = follow(client)
    assert types(events) == ["version", "lockAcquired", "replicaReady", "runSummary"]
    assert isinstance(events[-1], RunSummary)
    assert events[-1].outcomes[0].outcome == "ready"
    assert events[2].model_extra == {"model": "m", "replicaId": 0}


def test_following_writes_nothing(cluster: ClusterStandIn, client: DashboardClient) -> None:
    cluster.add_job("j", ("SUCCEEDED", VERSION + SUMMARY))
    follow(client)
    assert cluster.writes() == []


def test_an_incomplete_line_is_read_once_it_is_complete(cluster: ClusterStandIn, client: DashboardClient) -> None:
    for cut in (1, len(READY) // 2, len(READY) - 1):
        cluster.add_job("j", ("RUNNING", VERSION + READY[:cut]), ("SUCCEEDED", VERSION + READY + SUMMARY))
        assert types(follow(client)) == ["version", "replicaReady", "runSummary"]


def test_lines_of_other_programs_are_skipped(cluster: ClusterStandIn, client: DashboardClient) -> None:
    noise = "Running entrypoint for job\n\n{not json\n{}\n[1]\n{\"type\": 3}\n2026-03-04 INFO worker.py: hello\n"
    broken = '{"seq": 1, "time": "t", "type": "runSummary", "message": "no code"}\n'
    cluster.add_job("j", ("SUCCEEDED", noise + VERSION + noise + broken + SUMMARY + noise))
    assert types(follow(client)) == ["version", "runSummary"]


def test_an_event_of_an_unknown_type_is_relayed(cluster: ClusterStandIn, client: DashboardClient) -> None:
    future = event(1, "cardRepaired", "a card was repaired", card=3)
    cluster.add_job("j", ("SUCCEEDED", VERSION + future + SUMMARY))
    relayed = follow(client)[1]
    assert (relayed.type, relayed.message, relayed.model_extra) == ("cardRepaired", "a card was repaired", {"card": 3})


@pytest.mark.parametrize("words", ["a\u2028b", "a\x85b", "a\x0cb", "a\x1cb"])
def test_only_a_newline_ends_a_line(
    cluster: ClusterStandIn, client: DashboardClient, words: str
) -> None:
    line = json.dumps(json.loads(READY) | {"message": words}, ensure_ascii=False) + "\n"
    cluster.add_job("j", ("SUCCEEDED", VERSION + line + SUMMARY))
    assert [one.message for one in follow(client)][1] == words


def test_an_agent_that_died_without_a_summary_is_reported_with_rays_reason(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    cluster.add_job("j", ("RUNNING", VERSION), ("FAILED", VERSION + LOCKED)).message = "killed by signal 9"
    follower = RunFollower(client, "j", APPLY, sleep=lambda _: None).events()
    assert [next(follower).type, next(follower).type] == ["version", "lockAcquired"]
    with pytest.raises(ApplyError, match=r"ended without a summary \(FAILED: killed by signal 9\)") as caught:
        next(follower)
    assert "run the same command again" in (caught.value.hint or ""), "it may be a step of another verb"


def test_rays_reason_is_shown_without_its_excerpt_of_the_log(cluster: ClusterStandIn, client: DashboardClient) -> None:
    reason = "Job entrypoint command failed with exit code 137"
    cluster.add_job("j", ("FAILED", VERSION)).message = f"{reason}, last available logs (truncated):\n{LOCKED}"
    with pytest.raises(ApplyError) as caught:
        follow(client)
    assert caught.value.message == f"the agent ended without a summary (FAILED: {reason})"


def test_an_unknown_job_is_an_error(client: DashboardClient) -> None:
    with pytest.raises(ApplyError, match="has no job j"):
        follow(client)


@pytest.mark.parametrize("outage", [[UNAVAILABLE], [UNAVAILABLE] * 5, [(0, "")] * 6, [(200, "<html>")], [(500, "x")]])
def test_a_dashboard_that_is_unavailable_for_a_while_is_awaited(
    cluster: ClusterStandIn, client: DashboardClient, outage: list[tuple[int, str]]
) -> None:
    cluster.add_job("j", ("RUNNING", VERSION), ("SUCCEEDED", VERSION + SUMMARY))
    cluster.refusals["GET", "/api/jobs/j"] = list(outage)
    assert types(follow(client)) == ["version", "runSummary"]


def test_a_log_that_is_unavailable_when_the_job_has_ended_is_awaited(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    cluster.add_job("j", ("SUCCEEDED", VERSION + SUMMARY))
    cluster.refusals["GET", "/api/jobs/j/logs"] = [(500, "agent is busy"), (502, "")]
    assert types(follow(client)) == ["version", "runSummary"]


def test_following_gives_up_on_an_unreachable_dashboard_but_the_apply_continues(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    cluster.add_job("j", ("RUNNING", VERSION))
    cluster.refusals["GET", "/api/jobs/j"] = [UNAVAILABLE] * 10_000
    clock = Clock()
    with pytest.raises(ApplyError, match=r"lost contact with the apply.*503") as caught:
        follow(client, clock)
    assert "continues in the cluster" in (caught.value.hint or "")
    assert UNREACHABLE_S < clock.now < UNREACHABLE_S + 10
    assert not cluster.jobs["j"].stopped


def test_two_short_outages_are_not_one_long_outage(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    cluster.add_job("j", *[("RUNNING", VERSION)] * 3, ("SUCCEEDED", VERSION + SUMMARY))
    outage = [UNAVAILABLE] * 20

    def start_outage(wait: int) -> None:
        if wait in (1, 30):
            cluster.refusals["GET", "/api/jobs/j"] = list(outage)

    assert types(follow(client, Clock(start_outage))) == ["version", "runSummary"]


def test_a_refused_token_is_reported_after_a_while(cluster: ClusterStandIn, client: DashboardClient) -> None:
    cluster.add_job("j", ("RUNNING", VERSION))
    cluster.refusals["GET", "/api/jobs/j"] = [(401, "")] * 10_000
    with pytest.raises((ApplyError, ClusterRefused), match="401"):
        follow(client)


def test_waiting_ends_at_its_time_limit_and_the_apply_continues(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    cluster.add_job("j", ("RUNNING", VERSION))
    clock = Clock()
    with pytest.raises(WaitTimeout, match="continues in the cluster") as caught:
        follow(client, clock, wait_timeout_s=30)
    assert caught.value.exit_code == 7
    assert "apply --attach j" in (caught.value.hint or "")
    assert clock.now == 30
    assert not cluster.jobs["j"].stopped


def test_the_time_limit_includes_outages_of_the_dashboard(cluster: ClusterStandIn, client: DashboardClient) -> None:
    cluster.add_job("j", ("RUNNING", VERSION))
    cluster.refusals["GET", "/api/jobs/j"] = [UNAVAILABLE] * 10_000
    clock = Clock()
    with pytest.raises(WaitTimeout):
        follow(client, clock, wait_timeout_s=5)
    assert clock.now == 5


def test_an_available_summary_is_read_even_if_the_time_is_over(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    cluster.add_job("j", ("SUCCEEDED", VERSION + SUMMARY))
    assert types(follow(client, wait_timeout_s=0)) == ["version", "runSummary"]


def test_a_quiet_run_is_polled_less_often(cluster: ClusterStandIn, client: DashboardClient) -> None:
    cluster.add_job("j", ("RUNNING", VERSION))
    clock = Clock()
    with pytest.raises(WaitTimeout):
        follow(client, clock, wait_timeout_s=120)
    assert 110 < clock.waits < 150, "every second if nothing happens"


@pytest.mark.parametrize("line", [
    "", "text", "null", "{", '{"seq": "x"}', '{"type": "runSummary"}', '{"a": ' + "[" * 9_000,
])
def test_a_line_that_is_not_an_event_is_skipped(line: str) -> None:
    assert parse_line(line) is None


def test_following_continues_where_it_was_interrupted(cluster: ClusterStandIn, client: DashboardClient) -> None:
    """Events that were read but not yet relayed are neither lost nor relayed twice."""
    cluster.add_job("j", ("RUNNING", VERSION + LOCKED), ("SUCCEEDED", VERSION + LOCKED + READY + SUMMARY))
    follower = RunFollower(client, "j", APPLY, sleep=lambda _: None)
    assert next(follower.events()).type == "version"
    assert types(list(follower.events())) == ["lockAcquired", "replicaReady", "runSummary"]
