"""The page of any report: how it stands, its totals, its findings and tables, and what it was made from."""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.render.page.markup import Markup, el
from fleetctl.render.page.parts import contents, facts, filter_bar, header, totals
from fleetctl.render.page.shell import whole_page
from fleetctl.render.page.tables import Part, stays, table_parts
from fleetctl.render.report.model import Report


def report_page(report: Report, *, own: Sequence[Part] = (), before: frozenset[str] = frozenset(),
                rules: str = "") -> str:
    """Return the page. `own` parts stand before the first table whose key is in `before`, else at the end."""
    parts = list(table_parts(report.tables))
    place = next((number for number, part in enumerate(parts) if part.anchor in before), len(parts))
    parts[place:place] = own
    links = [*((part.anchor, part.title) for part in parts if part.title), ("facts", "Made from")]
    bar = filter_bar(nodes=bool(own), same=bool(own) or any(map(stays, report.tables)))
    main = el("main", header(report), totals(report), contents(links), bar, (part.body for part in parts),
              facts(report.facts), data_kind=report.kind, data_exit_code=report.exit_code)
    return whole_page(report.title, Markup(main + _inspector()), rules=rules)


def _inspector() -> Markup:
    """Return the line at the foot of the window that tells who holds a card; the script fills it.

    Hidden from screen readers: the cell that has the focus says the same.
    """
    return el("div", id="inspector", hidden=True, aria_hidden="true")
