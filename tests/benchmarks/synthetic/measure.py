"""One cold run, in a process of its own: fleet file and snapshot in, plan document out, each stage timed.

`python -m tests.benchmarks.synthetic.measure FOLDER` reads `fleet.yaml` and `inventory.json` of a folder, writes
`plan.json` into it and prints one JSON object.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

CERTIFICATE = (
    ("fleetctl.planner.placement.exact.exact", "examine"), ("fleetctl.planner.placement.exact.exact", "bound_replicas"),
    ("fleetctl.planner.repacked", "repacked_bound"),
)
"""What says how many could be placed at most: modules and names, imported again with each plan."""


@contextmanager
def timed(times: dict[str, float], name: str) -> Iterator[None]:
    """Add the seconds of a block to `times`: of the clock as `<name>_s`, of the processor as `<name>_cpu_s`."""
    began, busy = time.perf_counter(), time.process_time()
    yield
    for kind, taken in (("s", time.perf_counter() - began), ("cpu_s", time.process_time() - busy)):
        times[f"{name}_{kind}"] = times.get(f"{name}_{kind}", 0.0) + taken


def main(folder: Path) -> None:
    """Run the stages as `fleetctl plan --inventory FILE --format json` does."""
    times: dict[str, float] = {"certificate_s": 0.0, "certificate_cpu_s": 0.0}
    with timed(times, "import"):
        from fleetctl.fleetfile.load import load_fleet
        from fleetctl.inventory.snapshot import Snapshot
        from fleetctl.planner.options import PlanFacts, PlanOptions
        from fleetctl.planner.plan import make_plan
        from fleetctl.render.plan_json import saved_plan_json
    with timed(times, "parse"):
        fleet = load_fleet([str(folder / "fleet.yaml")])
    with timed(times, "inventory"):
        inventory = Snapshot(str(folder / "inventory.json")).read()
    tell_apart(times, "certificate", CERTIFICATE)
    with timed(times, "plan"):
        plan = make_plan(fleet, inventory, PlanOptions(), PlanFacts(tool_version="benchmark"))
    with timed(times, "render"):
        data = saved_plan_json(plan).encode()
    (folder / "plan.json").write_bytes(data)
    print(json.dumps({name: round(value, 4) for name, value in times.items()} | {
        "peak_rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }))


def tell_apart(times: dict[str, float], name: str, functions: Sequence[tuple[str, str]]) -> None:
    """Have the time in some functions told apart; it stays part of the stage that calls them."""
    for module_name, function_name in functions:
        module = import_module(module_name)
        setattr(module, function_name, _told_apart(getattr(module, function_name), times, name))


def _told_apart(function: Callable[..., Any], times: dict[str, float], name: str) -> Callable[..., Any]:
    def call(*args: Any, **more: Any) -> Any:
        with timed(times, name):
            return function(*args, **more)

    return call


if __name__ == "__main__":
    main(Path(sys.argv[1]))
