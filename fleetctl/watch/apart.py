"""Plans in a process of their own, which ends with its plan: a watch keeps neither NumPy (20 MiB) nor SciPy (40 more),
and a plan that does not end does not stop it.
"""

from __future__ import annotations

import pickle
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
"""Where this fleetctl is imported from: another one in the working folder must not be."""
LONGEST_S = 300.0


def make_plan_apart(fleet: ResolvedFleet, inventory: Inventory, options: PlanOptions, facts: PlanFacts) -> Plan:
    """Return what `make_plan` returns; raises what it raises, and ApplyError where the process that plans fails."""
    with Child([sys.executable, "-m", "fleetctl.watch.apart"], cwd=str(PACKAGES),
               stdin=pickle.dumps((fleet, inventory, options, facts))) as child:
        try:
            done = child.wait(LONGEST_S)
        except subprocess.TimeoutExpired:
            raise ApplyError(f"the process that plans has no plan after {LONGEST_S:g} s") from None
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise ApplyError(f"the process that plans ended with {done.returncode}{''.join(f': {line}' for line in last)}")
    answer: Plan | FleetctlError = pickle.loads(done.stdout)  # noqa: S301  of our own process
    if isinstance(answer, FleetctlError):
        raise answer
    return answer


def _answer(asked: bytes) -> Plan | FleetctlError:
    from fleetctl.planner.plan import make_plan

    try:
        return make_plan(*pickle.loads(asked))  # noqa: S301  of our own process
    except FleetctlError as error:
        return error


if __name__ == "__main__":
    sys.stdout.buffer.write(pickle.dumps(_answer(sys.stdin.buffer.read())))
