"""Synthetic fleets of the scale benchmark, planned from their files and checked independently of the planner."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fleetctl.fleetfile.load import load_fleet
from fleetctl.inventory.snapshot import Snapshot
from fleetctl.planner.options import PlanFacts, PlanOptions
from fleetctl.planner.plan import make_plan
from fleetctl.render.plan_json import saved_plan_json
from tests.benchmarks.scale import measure, write
from tests.benchmarks.synthetic.check import check
from tests.benchmarks.synthetic.fleet import SyntheticFleet
from tests.benchmarks.synthetic.kinds import KINDS, build
from tests.benchmarks.synthetic.peers import first_fit

pytestmark = pytest.mark.slow


def planned(fleet: SyntheticFleet, folder: Path) -> dict[str, Any]:
    write(fleet, folder)
    fleet = load_fleet([str(folder / "fleet.yaml")])
    inventory = Snapshot(str(folder / "inventory.json")).read()
    plan = make_plan(fleet, inventory, PlanOptions(), PlanFacts(tool_version="test"))
    document: dict[str, Any] = json.loads(saved_plan_json(plan))
    return document


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_plans_of_every_kind_of_synthetic_fleet_pass_the_checker(kind: str, tmp_path: Path) -> None:
    fleet = build(kind, 32, 120, 30, Random(7))
    plan = planned(fleet, tmp_path)
    assert check(fleet, plan) == []
    assert plan["certificate"]["placed"] >= 0.97 * fleet.planted
    assert plan["certificate"]["placed"] >= first_fit(fleet)


@pytest.mark.parametrize(("kind", "nodes", "replicas", "seed"), [
    # needs a larger solver model: patterns or the other start leave a replica out
    pytest.param("planted", 40, 260, 4, marks=pytest.mark.long),
    ("planted", 40, 260, 6),  # remove and reinsert takes more than 3,000 placements
    ("vram", 150, 750, 4),  # patterns leave out shares that Ray cannot place in any order of creation
    ("vram", 150, 750, 9),  # the pass that leaves room for later models is the better start
])
def test_a_fleet_that_fills_its_nodes_to_the_last_share_is_placed_whole(
    kind: str, nodes: int, replicas: int, seed: int, tmp_path: Path,
) -> None:
    plan = planned(build(kind, nodes, replicas, 60, Random(seed)), tmp_path)
    assert (plan["certificate"]["placed"], plan["certificate"]["status"]) == (replicas, "optimal")


def test_planted_running_replicas_are_neither_drift_nor_planned_again(tmp_path: Path) -> None:
    fleet = build("settled", 16, 80, 12, Random(3))
    plan = planned(fleet, tmp_path)
    assert plan["drift"] == plan["unmanaged"] == plan["holds"] == []
    assert plan["summary"]["live"] == len(fleet.held)
    assert plan["certificate"]["placed"] == fleet.planted > 0


def test_the_checker_reports_every_kind_of_error(tmp_path: Path) -> None:
    fleet = build("gangs", 32, 60, 12, Random(7))
    plan = planned(fleet, tmp_path)
    gang = next(action for action in plan["actions"] if len(action["members"]) > 1)
    place = plan["actions"].index(gang)

    def wrong(change: Any) -> str:
        broken = copy.deepcopy(plan)
        change(broken["actions"][place])
        return " | ".join(check(fleet, broken))

    leader, worker = 0, 1
    same_node = plan["actions"][place]["members"][leader]["nodeId"]
    assert "planId" in wrong(lambda action: action.update(priority=1))
    assert "two ranks" in wrong(lambda action: action["members"][worker].update(nodeId=same_node))
    assert "not all of its members" in wrong(lambda action: action["members"].pop())
    assert "continue from" in wrong(lambda action: action.update(replicaId=77))
    assert "slot 5" in wrong(lambda action: action["members"][leader].update(slot=5))
    assert "does not fit its cards" in wrong(lambda action: action["members"][worker].update(nodeId=same_node))


def test_a_measured_run_reports_every_stage(tmp_path: Path) -> None:
    fleet = build("vram", 8, 40, 12, Random(1))
    write(fleet, tmp_path)
    measured = measure(tmp_path)
    assert {f"{stage}_s" for stage in ("parse", "inventory", "plan", "certificate", "render", "total")} < set(measured)
    assert measured["peak_rss_mib"] > 10
    assert check(fleet, json.loads((tmp_path / "plan.json").read_bytes())) == []
