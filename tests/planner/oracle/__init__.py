"""The oracle: what the best plan for a small fleet would place, by CP-SAT, and how far a plan is from it."""

from __future__ import annotations

import sys
from pathlib import Path

# `python -m tests.planner.oracle.survey` must find the short forms of fleets beside this folder, as pytest does
_PLANNER_TESTS = str(Path(__file__).parents[1])
if _PLANNER_TESTS not in sys.path:
    sys.path.insert(0, _PLANNER_TESTS)
