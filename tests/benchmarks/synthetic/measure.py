"""One cold run, in a process of its own: fleet file and snapshot in, plan document out, each stage timed.

`python -m tests.benchmarks.synthetic.measure FOLDER` reads `fleet.yaml` and `inventory.json` of a folder, writes
`plan.json` into it and prints one JSON object.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def timed(times: dict[str, float], name: str) -> Iterator[None]:
    """Add the seconds of a block to `times[name]`."""
    began = time.perf_counter()
    yield
    times[name] = times.get(name, 0.0) + time.perf_counter() - began


def main(folder: Path) -> None:
    """Run the stages as `fleetctl plan --inventory FILE --format json` does."""
    times: dict[str, float] = {"certificate_s": 0.0}
    with timed(times, "import_s"):
        from fleetctl.inventory.read import Snapshot, read_inventory
        from fleetctl.planner import plan as planning
        from fleetctl.planner.options import PlanFacts, PlanOptions
        from fleetctl.render.plan_json import saved_plan_json
        from fleetctl.spec.load import load_fleet
    with timed(times, "parse_s"):
        fleet = load_fleet([str(folder / "fleet.yaml")])
    with timed(times, "inventory_s"):
        inventory = read_inventory(Snapshot(str(folder / "inventory.json")))
    _time_bound(planning, times)
    with timed(times, "plan_s"):
        plan = planning.make_plan(fleet, inventory, PlanOptions(), PlanFacts(tool_version="benchmark"))
    with timed(times, "render_s"):
        data = saved_plan_json(plan).encode()
    (folder / "plan.json").write_bytes(data)
    print(json.dumps({name: round(value, 4) for name, value in times.items()} | {
        "peak_rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }))


def _time_bound(planning: Any, times: dict[str, float]) -> None:
    """Have the time for the certificate told apart; it stays part of `plan_s`."""
    if not hasattr(planning, "upper_bound"):
        return
    bound = planning.upper_bound

    def told_apart(*args: Any, **more: Any) -> Any:
        with timed(times, "certificate_s"):
            return bound(*args, **more)

    planning.upper_bound = told_apart


if __name__ == "__main__":
    main(Path(sys.argv[1]))
