"""Lists from Ray's state API, read with explicit limits and never trusted to be whole without a look."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fleetctl.errors import InventoryError
from fleetctl.inventory.client import DashboardClient

LIMIT = 10_000
"""The most rows Ray gives in one answer; without a limit it gives 100."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Listing:
    """The rows of one list. `cut` = Ray left rows out because there are too many; `problems` = some may be missing."""

    rows: tuple[Row, ...]
    problems: tuple[str, ...] = ()
    cut: str | None = None


NOTHING = Listing(())


def list_rows(client: DashboardClient, what: str, *, where: tuple[str, str, str] | None = None,
              detail: bool = True) -> Listing:
    """Return the rows of /api/v0/<what>, filtered by `where` = (column, predicate, value).

    Ray looks up `state = X` at the source, so dead actors cost nothing; other filters run after reading.
    Raises InventoryError when there is no list at all in the answer.
    """
    path = f"/api/v0/{what}"
    params = {"limit": str(LIMIT), "detail": "true" if detail else "false"}
    if where is not None:
        params |= dict(zip(("filter_keys", "filter_predicates", "filter_values"), where, strict=True))
    return checked_listing(path, client.get_json(path, params))


def checked_listing(path: str, body: object) -> Listing:
    """Take a list out of what the state API answered; see `list_rows`."""
    if not isinstance(body, dict):
        raise InventoryError(f"{path} answered something that is not from Ray's state API")
    if body.get("result") is False:
        raise InventoryError(f"{path} failed in the cluster: {body.get('msg') or 'no reason given'}")
    data = body.get("data")
    listing = data.get("result") if isinstance(data, dict) else None
    rows = listing.get("result") if isinstance(listing, dict) else None
    if not isinstance(listing, dict) or not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InventoryError(f"{path} answered without a list")
    return Listing(tuple(rows), tuple(_problems(path, listing)), _cut(path, listing, len(rows)))


def _cut(path: str, listing: Mapping[str, Any], count: int) -> str | None:
    """Say how many rows were left out, at the source or by the limit of the answer."""
    total, kept, matching = (_count(listing.get(key)) for key in ("total", "num_after_truncation", "num_filtered"))
    if total is not None and kept is not None and total > kept:
        return f"{path} was cut: {kept} of {total} rows"
    if matching is not None and matching > count:
        return f"{path} was cut: {count} of {matching} rows"
    return None


def _problems(path: str, listing: Mapping[str, Any]) -> list[str]:
    """Say what else makes the list less than whole: a source that failed, or a warning."""
    warning = listing.get("partial_failure_warning")
    partial = [f"{path} is partial: {warning}"] if warning else []
    return partial + [f"{path}: {warning}" for warning in listing.get("warnings") or ()]


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
