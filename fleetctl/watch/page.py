"""The status page of a watch: the watched fleet, its replicas, the plan, the placement map, the news.

Built from the same parts as the page of a plan. The page alone causes no request to the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from fleetctl.documents.base import moment_at
from fleetctl.documents.canonical import sha256_hex, short_commit
from fleetctl.documents.inventory import dead_node_ids
from fleetctl.planner.failures import failed_lately, what_cools
from fleetctl.render.page.plan_page import map_part, map_rules
from fleetctl.render.page.report_page import Part, html_page, report_content
from fleetctl.render.report.model import Column, Report, Table
from fleetctl.render.report.of_plan import plan_report
from fleetctl.render.report.of_runs import history_report
from fleetctl.render.report.of_status import status_report

if TYPE_CHECKING:
    from fleetctl.watch.watcher import Watcher

FAILED, PARTIAL, REFUSED = 1, 3, 4
"""The state of the page, in the exit codes of an apply."""
TEXT = Column("text", "what")
CONDITIONS = (Column("about", "about"), TEXT)
NEWS = (Column("time", "time"), TEXT)
ABOUT = {"source": "repository", "revision": "newest revision", "cluster": "cluster",
         "policy": "a person must apply", "locked": "waiting", "error": "failed"}
"""Conditions that need attention and are in no other table."""


@dataclass(frozen=True)
class LivePage:
    """A page, and the digest by which a browser knows its version; the time when it `looked` is not in the digest.

    `map` and `rules` are the placement map and its style rules, made from `drawn_from`: a plan or an inventory.
    """

    report: Report
    drawn_from: object
    map: Part | None
    rules: str
    digest: str
    looked: str

    @cached_property
    def html(self) -> str:
        """The HTML of the page, built on first use: most requests only compare the digest."""
        dated = replace(self.report, facts=(*self.report.facts, ("last look", self.looked)))
        return html_page(dated.title, report_content(dated, self.map), rules=self.rules, live=self.digest)


def watch_page(watcher: Watcher, before: LivePage | None = None) -> LivePage:
    """Return the current page. The map of the page `before` is reused if it shows the same plan or inventory."""
    report = _report(watcher)
    shown = watcher.planned or watcher.seen
    drawn, rules = (before.map, before.rules) if before and before.drawn_from is shown else _drawn(watcher)
    digest = sha256_hex(repr((report, drawn, rules)).encode())[:16]
    return LivePage(report, shown, drawn, rules, digest, moment_at(watcher.looked_at))


def _drawn(watcher: Watcher) -> tuple[Part | None, str]:
    picture = watcher.planned.map() if watcher.planned else None
    return (map_part(picture, whole=True), map_rules(picture)) if picture else (None, "")


def _report(watcher: Watcher) -> Report:
    fleet = watcher.good.sound().name if watcher.good else ""
    conclusion, code = _state(watcher)
    planned = plan_report(watcher.planned.shown()) if watcher.planned else None
    return Report(
        kind="watch", title=f"Fleet {fleet}" if fleet else "fleetctl watch", fleet=fleet,
        conclusion=conclusion, exit_code=code, facts=tuple(_facts(watcher)), totals=planned.totals if planned else (),
        tables=tuple(_tables(watcher, planned.tables if planned else ())))


def _state(watcher: Watcher) -> tuple[str, int]:
    """Return the most important fact, as a sentence and as an exit code of an apply."""
    conditions, plan = watcher.state.conditions, watcher.planned.plan if watcher.planned else None
    revision = f"revision {short_commit(watcher.state.good)}"
    if watcher.good is None:
        return "There is no usable revision yet.", FAILED
    if conditions.keys() & {"source", "cluster", "error"}:
        return f"The loop keeps trying; {revision} stays in force.", FAILED
    if "policy" in conditions:
        return f"A person must apply {revision}.", REFUSED
    if plan is None:
        return f"Not planned yet: {revision}.", PARTIAL
    counts = plan.summary
    if "revision" in conditions or counts.blocked or counts.create or counts.after_pilot:
        later = f"{counts.after_pilot} after a pilot, " if counts.after_pilot else ""
        return f"In force: {revision}. {counts.create} to create, {later}{counts.blocked} blocked.", PARTIAL
    late = counts.not_ready
    return (f"Everything in {revision} is live or starting{f'; {late} no longer ready' if late else ''}.",
            PARTIAL if late else 0)


def _facts(watcher: Watcher) -> Iterator[tuple[str, str]]:
    state = watcher.state
    yield from (("newest revision", state.seen or "none"), ("last good revision", state.good or "none"),
                ("last applied revision", state.applied or "none"), ("interval", f"{state.interval_s:g} s"))
    if state.report_only:
        yield "mode", "report only: nothing is applied"
    if watcher.seen:
        yield "cluster", watcher.seen.source


def _tables(watcher: Watcher, of_plan: Iterable[Table]) -> Iterator[Table]:
    rows = tuple((ABOUT[about], text) for about, text in watcher.state.conditions.items() if about in ABOUT)
    if rows:
        yield Table("conditions", "Needs attention", CONDITIONS, rows)
    yield from _running(watcher)
    yield from (table for table in of_plan if table.key != "model")
    if watcher.news:
        yield Table("news", "News", NEWS, tuple(reversed(watcher.news)), folded=True)
    if watcher.history and watcher.history.runs:
        yield from (replace(table, folded=True) for table in history_report(watcher.history).tables)


def _running(watcher: Watcher) -> Iterator[Table]:
    """Yield the tables of `status`: models, replicas, failures and cooling."""
    if watcher.seen is None or watcher.good is None:
        return
    seen, fleet = watcher.seen, watcher.good.sound()
    drift = watcher.planned.plan.drift if watcher.planned else ()
    report = status_report(
        [replica for replica in seen.replicas if replica.fleet == fleet.name],
        {node.id: node.name for node in seen.nodes}, dead_node_ids(seen),
        [item for item in drift if item.is_outdated], fleet.models,
        observed_at=None,  # ages would change the digest each time
        failed=failed_lately(seen, fleet.name), cooling=[(item.name, item.why) for item in what_cools(fleet, seen)],
        pauses=[pause for pause in seen.pauses if pause.fleet == fleet.name],
        differences=False)  # the plan's own table has more detail
    yield from (replace(table, folded=table.key == "replica") for table in report.tables)
