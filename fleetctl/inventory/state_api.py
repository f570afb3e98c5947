"""Lists from Ray's state API, requested with explicit limits and always checked for completeness."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fleetctl.errors import InventoryError
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.json_values import whole_of

LIMIT = 10_000
"""The most rows in one answer of Ray; without a limit it gives 100."""

Row = Mapping[str, Any]
Read = TypeVar("Read")


@dataclass(frozen=True, slots=True)
class Listing(Generic[Read]):
    """The rows of one list, parsed; `unread` = the number of rows that could not be read.

    `cut` = Ray left rows out because there are too many; `problems` = other reasons why rows may be missing.
    """

    rows: tuple[Read, ...] = ()
    unread: int = 0
    problems: tuple[str, ...] = ()
    cut: str | None = None

    @property
    def losses(self) -> list[str]:
        """Why the list may lack rows."""
        return [*([self.cut] if self.cut else []), *self.problems]


def list_rows(client: DashboardClient, what: str, read: Callable[[Row], Read | None], *,
              filters: Sequence[tuple[str, str, str]] = ()) -> Listing[Read]:
    """Return the result of `read` for each row of /api/v0/<what>; `filters` = (column, operator, value), all required.

    Ray applies `state = X` at the source, so dead actors cost nothing; it applies other filters after reading. Rows are
    read as they arrive. Raises InventoryError when the answer has no list of rows.
    """
    path = f"/api/v0/{what}"
    params: dict[str, str | Sequence[str]] = {"limit": str(LIMIT), "detail": "true"}
    if filters:
        columns = zip(*filters, strict=True)
        params |= dict(zip(("filter_keys", "filter_predicates", "filter_values"), columns, strict=True))

    def read_row(_: str, row: object) -> Read | None:
        if not isinstance(row, dict):
            raise InventoryError(f"{path} answered without a list of rows")
        return read(row)

    found, listing = client.read_entries(path, ("data", "result", "result"), params, read_row)
    usable = tuple(row for row in found if row is not None)
    return Listing(usable, len(found) - len(usable), tuple(_problems(path, listing)), _cut(path, listing, len(found)))


def _cut(path: str, listing: Mapping[str, Any], count: int) -> str | None:
    """Report rows that were left out, at the source or by the limit of the answer."""
    total, kept, matching = (whole_of(listing.get(key)) for key in ("total", "num_after_truncation", "num_filtered"))
    if total is not None and kept is not None and total > kept:
        return f"{path} was cut: {kept} of {total} rows"
    if matching is not None and matching > count:
        return f"{path} was cut: {count} of {matching} rows"
    return None


def _problems(path: str, listing: Mapping[str, Any]) -> list[str]:
    """Report other reasons why the list is incomplete: a source that failed, or a warning."""
    partial, warnings = listing.get("partial_failure_warning"), listing.get("warnings") or []
    return [*([f"{path} is partial: {partial}"] if partial else []),
            *(f"{path}: {warning}" for warning in (warnings if isinstance(warnings, list) else [warnings]))]
