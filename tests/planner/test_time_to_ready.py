"""How long a start will take: the range holds nine of ten next starts, and starts that differ are not mixed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from random_cases import cases
from short_forms import plan_for, short_fleet, short_inventory

from fleetctl.documents.plan import Plan
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.planner.time_to_ready import LEAST_STARTS, MOST_STARTS, range_of
from fleetctl.planner.weights import MOST_S, startup_notes, with_startup_times
from tests.sizing.test_public_models import described

ONE, OTHER, GIB = "1" * 64, "2" * 64, 1 << 30
NODES = [{"name": "a", "gpus": 1}, {"name": "b", "gpus": 1}]
DISTRIBUTIONS: dict[str, Any] = {
    "steady": lambda draw, size: draw.lognormal(5.5, 0.02, size),
    "normal": lambda draw, size: np.abs(draw.normal(240, 24, size)),
    "skewed": lambda draw, size: draw.lognormal(5.5, 0.4, size),
    "any time between one and ten minutes": lambda draw, size: draw.uniform(60, 600, size),
    "a fixed part, and waits": lambda draw, size: 60 + draw.exponential(60, size),
    "waits": lambda draw, size: 1 + draw.exponential(200, size),
    "a disk with a queue": lambda draw, size: 30 * draw.weibull(1.5, size) + 5,
    "long tail": lambda draw, size: 60 * (1 + draw.pareto(3, size)),
    "cached or not": lambda draw, size: np.where(draw.random(size) < 0.5, 100, 130) * draw.lognormal(0, 0.02, size),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("known", [3, 4, 5, 8, 12, 20, 40])
def test_nine_of_ten_next_starts_are_in_the_range_of_those_before(name: str, known: int) -> None:
    draws = DISTRIBUTIONS[name](np.random.default_rng(known), (cases(10_000), known + 1))
    within = [(least <= after <= most) for *before, after in draws.tolist()
              for least, most in [range_of(before) or (0, 0)]]
    assert np.mean(within) >= 0.9


def test_a_range_has_every_start_before_it_and_gets_narrower_with_their_number() -> None:
    draw = np.random.default_rng(1)
    for known in range(LEAST_STARTS, MOST_STARTS + 5):
        times = draw.lognormal(5, 0.5, known).tolist()
        least, most = range_of(times) or (0, 0)
        assert 0 <= least <= min(times) <= max(times) <= most
    ranges = [range_of([100, 110, 120] * times) or (0, 0) for times in (1, 2, 4)]
    widths = [most - least for least, most in ranges]
    assert widths == sorted(widths, reverse=True)
    assert range_of([100.0] * 2) is None
    assert range_of([0.1, 864_000.0, 0.1]) is not None


def starts(*seconds: float, **more: Any) -> list[dict[str, Any]]:
    return [{"model": "m", "hash": "now", "node": "a", "seconds": one, "ago": f"{500 - number}m", **more}
            for number, one in enumerate(seconds)]


def fleet_of(**more: Any) -> ResolvedFleet:
    return short_fleet({"models": [{"key": "m", "replicas": 1, "gpus": 1, "hash": "now", **more}]})


def with_weights(replicas: int = 1, key: str = "m", index: str = ONE) -> ResolvedFleet:
    weights = {"from": [{"path": "/models/m"}], "index": index}
    return short_fleet({"models": [{"key": key, "replicas": replicas, "hash": "now", "workers": [
        {"name": "main", "members": [{"resources": {"gpus": 1}, "weights": weights}]}]}]})


def time_in(plan: Plan) -> Any:
    return plan.actions[0].ready_in


def planned(known: list[dict[str, Any]], fleet: ResolvedFleet | None = None, **more: Any) -> Plan:
    return plan_for(fleet or fleet_of(), short_inventory({"nodes": NODES[:1], "starts": known, **more}))


def test_a_plan_tells_the_range_and_from_which_starts_it_is_known() -> None:
    plan = planned(starts(500, 270, 220, 245))
    time = time_in(plan)
    assert (time.about, time.why) == (245, "3 starts of it on nodes that it has run on took 3m40s to 4m30s")
    assert time.least < 220 < 270 < time.most
    assert "ready in about 4m05s (" in plan.models[0].reason
    assert plan.models[0].reason.endswith("): 3 starts of it on nodes that it has run on took 3m40s to 4m30s")


def test_a_plan_of_which_nothing_is_known_and_one_that_starts_nothing_tell_no_time() -> None:
    plan = planned([])
    assert time_in(plan) is None
    assert "ready in" not in plan.models[0].reason
    assert "readyIn" not in plan.model_dump_json(by_alias=True)
    [row] = planned(starts(220, 245, 270), fleet_of(replicas=0)).models
    assert "ready in" not in row.reason


def test_too_few_starts_tell_a_time_without_a_range() -> None:
    time = time_in(planned(starts(500, 240, 260)))
    assert (time.about, time.least, time.most) == (250, None, None)
    one = time_in(planned(starts(250.4)))
    assert (one.about, one.least, one.why) == (250, None, "1 start of it on nodes new to it took 4m10s")


def test_starts_of_another_spec_count_only_if_there_are_none_of_this_one() -> None:
    other = starts(900, 910, 920, 930, hash="before")
    time = time_in(planned([*other, *starts(240)]))
    assert (time.about, time.why) == (240, "1 start of it on nodes that it has run on took 4m00s")
    time = time_in(planned(other))
    assert (time.about, time.why) == (
        920, "3 starts of it with another spec on nodes that it has run on took 15m10s to 15m30s")


def test_the_first_start_on_a_node_is_told_from_the_first_starts_on_others() -> None:
    known = [*starts(500, 100, 110, 120), *starts(520, node="x"), *starts(540, node="y")]
    assert time_in(planned(known)).about == 110
    new = plan_for(fleet_of(), short_inventory({"nodes": NODES[1:], "starts": known}))
    assert (time_in(new).about, time_in(new).why) == (
        520, "3 starts of it on nodes new to it took 8m20s to 9m00s")
    unrecorded = {"model": "m", "id": 0, "node": "b", "gpus": 0, "hash": "now"}
    had = plan_for(fleet_of(replicas=2), short_inventory(
        {"nodes": NODES[1:], "starts": known, "replicas": [unrecorded]}))
    assert time_in(had).about == 110


SERVING = {"model": "m", "id": 0, "node": "a", "hash": "now"}


def serving(**weights: Any) -> Any:
    """An inventory with free cards on b, and a replica on a that serves its weights."""
    found = short_inventory({"nodes": NODES, "replicas": [SERVING], "starts": [
        *starts(600, 610, 620, artifact=ONE, weights="origin", bytes=90 * GIB),
        *starts(100, 110, 120, artifact=ONE, weights="peer", bytes=90 * GIB),
        *starts(50, 51, 52, artifact=ONE, weights="disk", bytes=90 * GIB)]})
    [replica] = found.replicas
    [member] = replica.members
    plain = {**member.model_dump(by_alias=True), "address": "10.0.0.1", "weights": {
        "artifact": ONE, "port": 7000, "bytes": 90 * GIB, **weights}}
    return found.model_copy(update={"replicas": [type(replica).model_validate(
        {**replica.model_dump(by_alias=True), "members": [plain]})]})


def test_a_start_is_told_from_those_with_weights_from_the_same_kind_of_source() -> None:
    seen = serving()
    assert [action.members[0].node for action in plan_for(with_weights(2), seen).actions] == ["b"]
    assert time_in(plan_for(with_weights(2), seen)).why == (
        "3 starts of it with weights from another replica took 1m40s to 2m00s")
    silent = serving(port=None)
    assert time_in(plan_for(with_weights(2), silent)).about == 610
    nobody = seen.model_copy(update={"replicas": []})
    on_a = [node for node in seen.nodes if node.name == "a"]
    assert time_in(plan_for(with_weights(), nobody.model_copy(update={"nodes": on_a}))).about == 51


def test_without_a_start_of_the_model_its_bytes_and_the_speed_of_the_node_count() -> None:
    seen = serving()

    def started(*nodes: str) -> Any:
        return seen.model_copy(update={"starts": [
            start.model_copy(update={"model": "n", "artifact": OTHER, "bytes": 30 * GIB, "node_ids": [node]})
            for node in nodes for start in seen.starts]})

    [action] = plan_for(with_weights(2), started("a", "z")).actions
    assert action.ready_in is not None
    assert (action.ready_in.about, action.ready_in.least, action.ready_in.why) == (330, None, (
        "90Gi at 279.27Mi/s, as in 6 starts of other models with weights from another replica in this cluster"))
    faster = started("a", "b")
    faster.starts[:] = [start.model_copy(update={"seconds": start.seconds / 2}) if start.node_ids == ["b"] else start
                        for start in faster.starts]
    time = time_in(plan_for(with_weights(2), faster))
    assert (time.about, time.why.rpartition("as in ")[2]) == (
        165, "3 starts of other models with weights from another replica on b")
    unknown = plan_for(with_weights(key="k", index="3" * 64), faster)
    assert time_in(unknown) is None, "nobody knows how large its weights are"


def test_a_described_model_is_told_from_the_speed_of_other_described_ones() -> None:
    fleet = short_fleet({"models": [{"key": key, "replicas": replicas, "gpus": 1, "hash": "now"}
                                    for key, replicas in (("m", 1), ("k", 0))]})
    sizes = {"m": described("qwen3-30b-a3b"), "k": described("llama-3.1-8b")}
    with_sizes = replace(fleet, models=tuple(replace(one, description=sizes[one.key]) for one in fleet.models))
    time = time_in(planned(starts(100, model="k"), with_sizes))
    assert time.about == round(100 * sizes["m"].loaded / sizes["k"].loaded)
    assert time.why.endswith("as in 1 start of other models on a")
    assert time_in(planned(starts(100, model="k"), fleet)) is None


def test_a_startup_timeout_by_default_is_at_least_twice_the_longest_start_known() -> None:
    def allowed(fleet: ResolvedFleet, *seconds: float, **more: Any) -> float:
        [model] = with_startup_times(fleet, short_inventory({"starts": starts(*seconds, **more)})).models
        return model.startup_timeout_s

    by_default = replace(fleet_of(), models=tuple(
        replace(one, startup_by_default=True) for one in fleet_of().models))
    assert allowed(by_default, 100, 440) == 900, "never shorter"
    assert allowed(by_default, 1_000, 100) == 34 * 60
    assert allowed(by_default, 1_000, hash="before") == 34 * 60
    assert allowed(by_default, 800_000) == 900 + MOST_S, "what an actor says is a claim"
    assert allowed(by_default, 1_000, model="n") == 900
    assert allowed(fleet_of(), 1_000) == 900, "the file sets it"


def test_the_plan_says_why_a_start_may_take_longer() -> None:
    fleet = replace(fleet_of(), models=tuple(replace(one, startup_by_default=True) for one in fleet_of().models))
    plan = planned(starts(1_500, 1_000), fleet)
    [action], [row] = plan.actions, plan.models
    assert action.lifecycle.startup_timeout == row.startup_timeout == 3_000
    assert "a start is allowed 50m: 2 times the 25m00s of its longest start" in row.reason
    assert startup_notes(fleet, short_inventory({"starts": starts(1_500, 1_000)})) == {
        "m": "allowed 50m: 2 times the 25m00s of its longest start"}
    assert startup_notes(fleet, short_inventory({"starts": starts(150)})) == {}
    assert action.spec_hash == planned([], fleet).actions[0].spec_hash
