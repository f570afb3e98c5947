"""The page of a large fleet in Chromium: `python -m tests.benchmarks.page --nodes 1000 --json`.

Renders the page of a synthetic plan and opens it from a file several times. Measures the time until it is loaded, until
a filter is drawn, and until a cell reacts to the pointer. With --json the last line is one JSON object; times are
medians in milliseconds. Without Chromium only the rendering is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetctl.render.page.plan_page import plan_page
from fleetctl.version import __version__
from tests.benchmarks.machine import machine_text
from tests.browser.chromium import ABSENT, find_chromium, launch_options
from tests.browser.page_worlds import large

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

# From a change to the second frame after it, when the change has been drawn.
DRAWN = """async (change) => {
  const frame = () => new Promise(requestAnimationFrame);
  const field = document.getElementById('filter');
  const began = performance.now();
  if (change.pointer) document.querySelectorAll('.node .cell.new')[change.pointer]
      .dispatchEvent(new PointerEvent('pointerover', {bubbles: true}));
  else { field.value = change.text; field.dispatchEvent(new Event('input')); }
  const script = performance.now() - began;
  await frame(); await frame();
  return [script, performance.now() - began];
}"""
LOADED = "() => performance.getEntriesByType('navigation')[0].loadEventEnd"
LONGEST = """() => new Promise(done => { new PerformanceObserver(list => done(
    Math.max(...list.getEntries().map(one => one.duration)))).observe({type: 'longtask', buffered: true});
    setTimeout(() => done(0), 300); })"""


def main() -> None:
    """Run the benchmark."""
    flags = _flags()
    made = large(flags.nodes, flags.models)
    began = time.perf_counter()
    html = plan_page(made.plan, made.picture)
    results: dict[str, Any] = {
        "benchmark": "page", "nodes": flags.nodes, "models": flags.models, "cards": 8 * flags.nodes,
        "render_ms": round((time.perf_counter() - began) * 1000), "bytes": len(html.encode()), "rounds": flags.rounds,
    }
    path = find_chromium(os.environ)
    if path is None:
        print(ABSENT)
    else:
        results |= in_chromium(path, html, flags.rounds)
    results |= {"machine": machine_text(), "fleetctl": __version__}
    print(json.dumps(results) if flags.json else "\n".join(f"{name:16} {value}" for name, value in results.items()))


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000, help="of eight cards each")
    parser.add_argument("--models", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    return parser.parse_args()


def in_chromium(path: str, html: str, rounds: int) -> dict[str, Any]:
    """Open the page `rounds` times, each time in a new context."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder) / "page.html"
        file.write_text(html, encoding="utf-8")
        browser = playwright.chromium.launch(**launch_options(path))  # type: ignore[arg-type]
        opened = [_one_round(browser, file.as_uri()) for _ in range(rounds)]
        about = {"chromium": browser.version}
        browser.close()
    return {name: round(statistics.median(one[name] for one in opened), 1) for name in opened[0]} | about


def _one_round(browser: Browser, address: str) -> dict[str, float]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(address)
    found = {
        "elements": page.evaluate("() => document.querySelectorAll('*').length"), "load_ms": page.evaluate(LOADED),
        "longest_task_ms": page.evaluate(LONGEST), **_drawn(page, "filter_model", {"text": "org-0/model-07"}),
        **_drawn(page, "filter_node", {"text": "node-0123"}), **_drawn(page, "clear", {"text": ""}),
        **_drawn(page, "pointer", {"pointer": 5}),
    }
    context.close()
    return found


def _drawn(page: Page, name: str, change: dict[str, Any]) -> dict[str, float]:
    script, whole = page.evaluate(DRAWN, change)
    return {f"{name}_script_ms": script, f"{name}_ms": whole}


if __name__ == "__main__":
    main()
