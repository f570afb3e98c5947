"""Recorded shapes in the logs of applies: newest first, only as many logs as needed, without damaged records."""

from __future__ import annotations

from typing import Any

import pytest
from cluster_stand_in import ClusterStandIn, event
from small_plans import FLEET, small_plan

from fleetctl.apply.history import BATCH, SpecOf, find_recorded, recorded_in
from fleetctl.apply.prepare import apply_record
from fleetctl.documents.plan import Plan
from fleetctl.inventory.client import DashboardClient

OPEN_FLEET = FLEET.replace(', env: {TOKEN: "hush-hush"}', "")


def log_of(plan: Plan, **changes: Any) -> str:
    record = {**apply_record(plan), **changes}
    return event(0, "version") + event(1, "lockAcquired") + event(2, "planAccepted", **record)


def add_apply(cluster: ClusterStandIn, name: str, log: str, start_time: int, **metadata: str) -> None:
    job = cluster.add_job(name, verb=metadata.pop("verb", "apply"), fleet="lab", start_time=start_time, **metadata)
    job.status, job.log, job.steps = "SUCCEEDED", log, []


def specs(plan: Plan) -> set[SpecOf]:
    return {(action.model, action.spec_hash) for action in plan.actions}


def logs_read(cluster: ClusterStandIn) -> int:
    return sum(path.endswith("/logs") for _, path in cluster.requests)


def test_the_newest_apply_that_created_a_spec_has_its_record(cluster: ClusterStandIn, client: DashboardClient) -> None:
    old, new = small_plan("a", fleet=OPEN_FLEET), small_plan("a", fleet=OPEN_FLEET.replace("90s", "80s"))
    add_apply(cluster, "old", log_of(old), 1)
    add_apply(cluster, "new", log_of(new), 2)
    assert specs(old) == specs(new), "timeouts are not part of a spec"
    found = find_recorded(client, "lab", specs(old))
    assert {one.job for one in found.values()} == {"new"}
    assert {one.model.lifecycle.startup_timeout for one in found.values()} == {80.0}


def test_a_shape_without_secrets_matches_its_hash(cluster: ClusterStandIn, client: DashboardClient) -> None:
    add_apply(cluster, "j", log_of(small_plan("a", "b")), 1)
    whole = {one.model.key: one.whole for one in find_recorded(client, "lab", specs(small_plan("a", "b"))).values()}
    assert whole == {"org/one:1": False, "org/gang": True}


def test_no_more_logs_are_read_after_all_shapes_are_found(cluster: ClusterStandIn, client: DashboardClient) -> None:
    plan = small_plan("a", fleet=OPEN_FLEET)
    for number in range(3 * BATCH):
        add_apply(cluster, f"j{number}", log_of(plan), number)
    find_recorded(client, "lab", specs(plan))
    assert logs_read(cluster) == BATCH


def test_a_spec_that_was_only_reloaded_in_place_is_found(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    plan = small_plan("a", fleet=OPEN_FLEET)
    add_apply(cluster, "reloaded", log_of(plan), 1, create="0", reloads="[]")
    assert {one.job for one in find_recorded(client, "lab", specs(plan)).values()} == {"reloaded"}


def test_logs_of_runs_that_created_nothing_are_not_read(cluster: ClusterStandIn, client: DashboardClient) -> None:
    add_apply(cluster, "waited", "", 3, create="0")
    add_apply(cluster, "evicted", "", 2, verb="evict")
    assert find_recorded(client, "lab", {("m", "x")}) == {}
    assert logs_read(cluster) == 0


def test_nothing_is_read_if_nothing_is_wanted(cluster: ClusterStandIn, client: DashboardClient) -> None:
    add_apply(cluster, "j", log_of(small_plan("a")), 1)
    assert find_recorded(client, "lab", set()) == {}
    assert logs_read(cluster) == 0


def test_a_missing_log_is_skipped(cluster: ClusterStandIn, client: DashboardClient) -> None:
    plan = small_plan("a", fleet=OPEN_FLEET)
    add_apply(cluster, "old", log_of(plan), 1)
    add_apply(cluster, "new", log_of(plan), 2)
    cluster.refusals["GET", "/api/jobs/new/logs"] = [(500, "the node is dead")]
    assert {one.job for one in find_recorded(client, "lab", specs(plan)).values()} == {"old"}


@pytest.mark.parametrize("changes", [
    {"shapes": {}}, {"shapes": 3}, {"models": "x"}, {"models": [{"key": "m"}]},
    {"shapes": {key: {"workers": []} for _, key in specs(small_plan("a", fleet=OPEN_FLEET))}},
    {"shapes": {key: {"workers": float("nan")} for _, key in specs(small_plan("a", fleet=OPEN_FLEET))}},
])
def test_a_record_that_does_not_match_its_hash_is_skipped(changes: dict[str, Any]) -> None:
    assert list(recorded_in(log_of(small_plan("a", fleet=OPEN_FLEET), **changes), "j")) == []


def test_a_truncated_record_is_skipped() -> None:
    text = log_of(small_plan("a", fleet=OPEN_FLEET))
    assert list(recorded_in(text[:-40], "j")) == []
    assert list(recorded_in("[" * 100_000 + '"type":"planAccepted"', "j")) == []
