"""The status page of a watch of a large fleet in Chromium: `python -m tests.benchmarks.status_page --json`.

The page is served as by `watch --listen`; then a replica restarts, and the open page updates. With --json the last line
is one JSON object. Times are medians in milliseconds: processor time for rendering the page and for a turn of the loop
without a change; wall-clock time until the first paint, until the load event, and from the turn of the loop to the
first paint of the new page. Without Chromium only the rendering is measured.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetctl.cli.watch_server import Served, serving
from fleetctl.documents.events import RunSummary
from fleetctl.fleetfile.load import LoadedFleet
from fleetctl.planner.options import PlanFacts, PlanOptions
from fleetctl.version import __version__
from fleetctl.watch.page import watch_page
from fleetctl.watch.source import Files
from fleetctl.watch.step import WatchState
from fleetctl.watch.watcher import Watcher
from fleetctl.workflow.invocation import Invocation, Where
from fleetctl.workflow.planning import PlannedFleet
from tests.benchmarks.machine import machine_text
from tests.benchmarks.page import LOADED, LONGEST
from tests.browser.chromium import ABSENT, find_chromium, launch_options
from tests.browser.page_worlds import Drawn, large

if TYPE_CHECKING:
    from playwright.sync_api import Page

FIRST_PAINT = """() => new Promise(done => new PerformanceObserver(list => done(list.getEntries()[0].startTime))
    .observe({type: 'paint', buffered: true}))"""


def watcher_of(made: Drawn) -> Watcher:
    """Return a watcher with a finished plan and no cluster."""
    def run(_: object) -> RunSummary:
        raise NotImplementedError

    invocation = Invocation({}, Path(), lambda: "", lambda: b"", lambda *_: None, lambda: 0)
    fleet, seen = made.world.fleet, made.world.inventory
    state = WatchState(30, seen="0123abcd", good="0123abcd", applied="0123abcd")
    planned = PlannedFleet(fleet, seen, PlanOptions(), PlanFacts(tool_version=""), made.plan)
    return Watcher(invocation, Files([]), Where(), time.monotonic, run, state, good=LoadedFleet(fleet, ()), seen=seen,
                   planned=planned, looked_at=time.time())


def change(watcher: Watcher, number: int) -> None:
    """Let one more replica restart, with its event."""
    assert watcher.seen
    replicas = list(watcher.seen.replicas)
    replicas[number] = replicas[number].model_copy(update={"state": "RESTARTING"})
    watcher.seen = watcher.seen.model_copy(update={"replicas": replicas})
    watcher.say("2026-03-04T12:00:00Z", f"replica {number} restarts")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000, help="of eight cards each")
    parser.add_argument("--models", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    flags = parser.parse_args()
    watcher = watcher_of(large(flags.nodes, flags.models))
    made, same = [], []
    for _ in range(flags.rounds):
        began = time.process_time()
        page = watch_page(watcher)
        html = page.html.encode()
        made.append(time.process_time() - began)
        watch_page(watcher, page)
        same.append(time.process_time() - began - made[-1])
    assert watcher.seen
    results: dict[str, Any] = {
        "benchmark": "status_page", "nodes": flags.nodes, "models": flags.models, "rounds": flags.rounds,
        "replicas": len(watcher.seen.replicas), "bytes": len(html), "packed_bytes": len(gzip.compress(html, 1)),
        "made_cpu_ms": round(1000 * statistics.median(made)), "same_cpu_ms": round(1000 * statistics.median(same))}
    path = find_chromium(os.environ)
    if path is None:
        print(ABSENT)
    else:
        results |= in_chromium(path, watcher, flags.rounds)
    results |= {"machine": machine_text(), "fleetctl": __version__}
    print(json.dumps(results) if flags.json else "\n".join(f"{name:16} {value}" for name, value in results.items()))


def in_chromium(path: str, watcher: Watcher, rounds: int) -> dict[str, Any]:
    """Open the page `rounds` times, each time in a new context, and change it once."""
    from playwright.sync_api import sync_playwright

    with serving(watcher, "127.0.0.1:0", None) as served, sync_playwright() as playwright:
        assert served
        browser = playwright.chromium.launch(**launch_options(path))  # type: ignore[arg-type]
        opened = []
        for number in range(rounds):
            context = browser.new_context(viewport={"width": 1280, "height": 900})
            opened.append(_one_round(context.new_page(), watcher, served, number))
            context.close()
        about = {"chromium": browser.version}
        browser.close()
    rows = [[one[name] for one in opened] for name in opened[0]]
    spread = {name: [round(min(row)), round(max(row))] for name, row in zip(opened[0], rows, strict=True)}
    return {name: round(statistics.median(row), 1) for name, row in zip(opened[0], rows, strict=True)} | {
        "least_and_most": spread} | about


def _one_round(page: Page, watcher: Watcher, served: Served, number: int) -> dict[str, float]:
    page.goto(f"{served.url}/")
    found = {"elements": page.evaluate("() => document.querySelectorAll('*').length"),
             "first_paint_ms": page.evaluate(FIRST_PAINT), "load_ms": page.evaluate(LOADED),
             "longest_task_ms": page.evaluate(LONGEST)}
    change(watcher, number)
    began = time.perf_counter()
    served.turned()
    digest = served.page().digest
    page.wait_for_function("digest => document.body && document.body.dataset.live === digest", arg=digest,
                           timeout=60_000)
    page.evaluate(FIRST_PAINT)
    return {**found, "update_ms": 1000 * (time.perf_counter() - began)}


if __name__ == "__main__":
    main()
