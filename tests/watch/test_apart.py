"""A plan that needs the solver: made by another process, the same to a byte, and SciPy is not loaded by it here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ASKED = """
import sys
from fleetctl.planner.options import PlanFacts, PlanOptions
from fleetctl.planner.plan import make_plan
from fleetctl.watch.apart import make_plan_apart
from planner.planner_worlds import short_fleet, short_inventory

fleet = short_fleet({"models": [{"key": "three", "replicas": 8, "gpus": 3}, {"key": "five", "replicas": 4, "gpus": 5},
                                {"key": "gang", "replicas": 2, "gang": {"gpus": 4, "workers": 1}}]})
seen = short_inventory({"nodes": [{"name": f"n{number}", "gpus": 8} for number in range(5)]})
inputs = fleet, seen, PlanOptions(), PlanFacts(tool_version="1")
apart = make_plan_apart(*inputs)
assert "scipy" not in sys.modules, "loaded here"
assert apart == make_plan(*inputs)
assert "scipy.optimize" in sys.modules, "this plan needs no solver and shows nothing"
"""


def test_a_plan_that_needs_the_solver_is_the_same_and_leaves_nothing_in_memory() -> None:
    tests = Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", ASKED], cwd=tests, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
