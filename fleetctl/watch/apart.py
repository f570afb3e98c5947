"""Plans without SciPy in this process: it takes 40 MiB, and a watch that has loaded it once would keep them.

Most plans need no solver. One that does is made by a process of its own, which ends with its plan.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleetctl.documents.inventory import Inventory
from fleetctl.documents.plan import Plan
from fleetctl.errors import ApplyError
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.planner.options import PlanFacts, PlanOptions

PACKAGES = Path(__file__).parents[2]
"""Where this fleetctl is imported from: another one in the working folder must not be."""


def make_plan_apart(fleet: ResolvedFleet, inventory: Inventory, options: PlanOptions, facts: PlanFacts) -> Plan:
    """Return what `make_plan` returns."""
    from fleetctl.planner.plan import make_plan

    try:
        with _without("scipy"):
            return make_plan(fleet, inventory, options, facts)
    except ImportError:
        return _asked(pickle.dumps((fleet, inventory, options, facts)))


@contextmanager
def _without(package: str) -> Iterator[None]:
    """Let imports of a package fail, unless it is loaded."""
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[package]


def _asked(inputs: bytes) -> Plan:
    done = subprocess.run([sys.executable, "-m", "fleetctl.watch.apart"], cwd=PACKAGES, input=inputs,
                          capture_output=True, check=False, start_new_session=True)
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise ApplyError(f"the process that plans ended with {done.returncode}{''.join(f': {line}' for line in last)}")
    plan: Plan = pickle.loads(done.stdout)  # noqa: S301  of our own process
    return plan


if __name__ == "__main__":
    from fleetctl.planner.plan import make_plan

    sys.stdout.buffer.write(pickle.dumps(make_plan(*pickle.loads(sys.stdin.buffer.read()))))  # noqa: S301
