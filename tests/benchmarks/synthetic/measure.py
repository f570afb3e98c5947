"""One cold run in its own process: fleet file and snapshot in, plan document out, each stage timed.

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
    ("fleetctl.planner.placement.exact.exact", "repacked_bound"),
)
"""The computations of the upper bound: modules and names, imported again for each plan."""


@contextmanager
def timed(times: dict[str, float], name: str) -> Iterator[None]:
    """Add the seconds of a block to `times`: wall-clock as `<name>_s`, processor as `<name>_cpu_s`."""
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
    measure_separately(times, "certificate", CERTIFICATE)
    with timed(times, "plan"):
        plan = make_plan(fleet, inventory, PlanOptions(), PlanFacts(tool_version="benchmark"))
    with timed(times, "render"):
        data = saved_plan_json(plan).encode()
    (folder / "plan.json").write_bytes(data)
    print(json.dumps({name: round(value, 4) for name, value in times.items()} | {
        "peak_rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }))


def measure_separately(times: dict[str, float], name: str, functions: Sequence[tuple[str, str]]) -> None:
    """Also measure the functions on their own; their time stays part of the calling stage."""
    for module_name, function_name in functions:
        module = import_module(module_name)
        setattr(module, function_name, _timed_function(getattr(module, function_name), times, name))


def _timed_function(function: Callable[..., Any], times: dict[str, float], name: str) -> Callable[..., Any]:
    def call(*args: Any, **more: Any) -> Any:
        with timed(times, name):
            return function(*args, **more)

    return call


if __name__ == "__main__":
    main(Path(sys.argv[1]))
