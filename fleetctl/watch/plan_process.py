"""Planning in a subprocess that ends with its plan: the watch loads neither NumPy (20 MiB) nor SciPy (40 more), and a
plan that never ends does not stop it.
"""

from __future__ import annotations

import pickle
import resource
import subprocess
import sys
from pathlib import Path

from fleetctl.child import Child
from fleetctl.documents.inventory import Inventory
from fleetctl.documents.plan import Plan
from fleetctl.errors import ApplyError, FleetctlError
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.planner.options import PlanFacts, PlanOptions

PACKAGES = Path(__file__).parents[2]
"""The folder of this fleetctl: the subprocess must not import another one from the working folder."""
LONGEST_S = 300.0
MOST_MEMORY = 8 << 30
"""The address space of the subprocess, in bytes. NumPy reserves, but does not use, tens of MiB for each processor."""


def make_plan_in_subprocess(fleet: ResolvedFleet, inventory: Inventory, options: PlanOptions, facts: PlanFacts) -> Plan:
    """Return the plan of `make_plan`; raises its errors, and ApplyError when the subprocess fails."""
    with Child([sys.executable, "-m", "fleetctl.watch.plan_process"], cwd=str(PACKAGES),
               stdin=pickle.dumps((fleet, inventory, options, facts))) as child:
        try:
            done = child.wait(LONGEST_S)
        except subprocess.TimeoutExpired:
            raise ApplyError(f"the planning process has no plan after {LONGEST_S:g} s") from None
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise ApplyError(f"the planning process ended with {done.returncode}{''.join(f': {line}' for line in last)}")
    answer: Plan | FleetctlError = pickle.loads(done.stdout)  # noqa: S301  from our own process
    if isinstance(answer, FleetctlError):
        raise answer
    return answer


def limit_memory(most: int) -> None:
    """Limit the address space of this process, in bytes; beyond it, Python raises MemoryError."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (most if hard < 0 else min(most, hard), hard))


def _answer(inputs: bytes) -> Plan | FleetctlError:
    limit_memory(MOST_MEMORY)
    from fleetctl.planner.plan import make_plan

    try:
        return make_plan(*pickle.loads(inputs))  # noqa: S301  from our own process
    except FleetctlError as error:
        return error


if __name__ == "__main__":
    sys.stdout.buffer.write(pickle.dumps(_answer(sys.stdin.buffer.read())))
