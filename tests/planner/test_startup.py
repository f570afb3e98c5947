"""A start may take longer for large weights, if the file sets no time and a replica has them already."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from short_forms import plan_for, short_fleet, short_inventory

from fleetctl.documents.inventory import Inventory
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.planner.weights import MOST_S, SLOW, with_startup_times

ONE, OTHER = "1" * 64, "2" * 64
GIB = 1 << 30


def fleet_of(*, by_default: bool = True, index: str = ONE) -> ResolvedFleet:
    weights = {"from": [{"path": "/models/m"}], "index": index}
    fleet = short_fleet({"models": [{"key": "m", "replicas": 2, "workers": [
        {"name": "main", "members": [{"resources": {"gpus": 1}, "weights": weights}]}]}]})
    return replace(fleet, models=tuple(replace(one, startup_by_default=by_default, engine_hash="e")
                                       for one in fleet.models))


def running(size: int | None, **more: Any) -> Inventory:
    found = short_inventory({"nodes": [{"name": "a", "gpus": 8}],
                             "replicas": [{"model": "m", "id": 0, "node": "a", **more}]})
    [replica] = found.replicas
    served = {"artifact": ONE, "port": 7000, "bytes": size}
    members = [{**member.model_dump(by_alias=True), "weights": served} for member in replica.members]
    return found.model_copy(update={"replicas": [
        type(replica).model_validate({**replica.model_dump(by_alias=True), "members": members})]})


@pytest.mark.parametrize(("size", "minutes"), [
    (140 * GIB, 7), (SLOW * 60, 1), (SLOW * 60 - 1, 0), (0, 0), (None, 0), (1 << 60, MOST_S // 60)])
def test_a_start_may_take_whole_minutes_longer_by_the_bytes_that_a_replica_has(size: int | None, minutes: int) -> None:
    [model] = with_startup_times(fleet_of(), running(size)).models
    assert model.startup_timeout_s == 900 + 60 * minutes


def test_a_time_in_the_file_other_weights_and_a_dead_replica_change_nothing() -> None:
    for fleet, seen in ((fleet_of(by_default=False), running(140 * GIB)), (fleet_of(index=OTHER), running(140 * GIB)),
                        (fleet_of(), running(140 * GIB, state="DEAD"))):
        assert with_startup_times(fleet, seen) == fleet


def test_the_plan_allows_the_whole_time_everywhere_and_says_why() -> None:
    plan = plan_for(fleet_of(), running(140 * GIB))
    [action], [row] = plan.actions, plan.models
    assert action.lifecycle.startup_timeout == row.startup_timeout == 900 + 7 * 60
    assert row.startup_bytes == 140 * GIB
    assert "a start is allowed 22m: 15m + 140Gi at 300Mi/s" in row.reason
    assert "allowed" not in plan_for(fleet_of(by_default=False), running(140 * GIB)).models[0].reason
