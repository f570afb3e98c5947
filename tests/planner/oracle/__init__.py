"""The oracle: the optimum for a small fleet, found by CP-SAT, and how far a plan is from it."""

from __future__ import annotations

import sys
from pathlib import Path

# makes short_forms importable for `python -m tests.planner.oracle.survey`, as pytest does
_PLANNER_TESTS = str(Path(__file__).parents[1])
if _PLANNER_TESTS not in sys.path:
    sys.path.insert(0, _PLANNER_TESTS)
