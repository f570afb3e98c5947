"""Planning in a subprocess that ends with its plan: the watch loads neither NumPy (20 MiB) nor SciPy (40 more), and a
plan that never ends does not stop it.
"""

from __future__ import annotations

import subprocess

from fleetctl.child import Limits, answer_question, ask_module
from fleetctl.documents.inventory import Inventory
from fleetctl.documents.plan import Plan
from fleetctl.errors import ApplyError, FleetctlError
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.planner.options import PlanFacts, PlanOptions

LONGEST_S = 300.0
MAX_MEMORY_BYTES = 8 << 30
"""The heap of the subprocess, in bytes. NumPy reserves, but does not use, tens of MiB for each processor."""


def make_plan_in_subprocess(fleet: ResolvedFleet, inventory: Inventory, options: PlanOptions, facts: PlanFacts) -> Plan:
    """Return the plan of `make_plan`; raises its errors, and ApplyError when the subprocess fails."""
    try:
        plan: Plan = ask_module("fleetctl.watch.plan_process", (fleet, inventory, options, facts), LONGEST_S,
                                Limits(MAX_MEMORY_BYTES))
    except subprocess.TimeoutExpired:
        raise ApplyError(f"the planning process has no plan after {LONGEST_S:g} s") from None
    except OSError as error:
        raise ApplyError(f"the planning process {error}") from None
    return plan


def _answer(inputs: tuple[ResolvedFleet, Inventory, PlanOptions, PlanFacts]) -> Plan | FleetctlError:
    from fleetctl.planner.plan import make_plan

    try:
        return make_plan(*inputs)
    except FleetctlError as error:
        return error


if __name__ == "__main__":
    answer_question(_answer)
