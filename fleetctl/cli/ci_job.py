"""What a CI job is asked to do, from its flags and variables."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.cli.planning import Where
    from fleetctl.forge.change import Forge


class FailOn(str, Enum):
    """What fails a review, beside errors."""

    POLICY = "policy"
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True)
class Job:
    """One run of `fleetctl ci`."""

    files: tuple[str, ...]
    where: Where
    forge: Forge | None = None
    base: str | None = None
    out: Path | None = None
    reports: tuple[str, ...] = ()
    fail_on: FailOn = FailOn.POLICY
    force: bool = False
    comment: bool = True

    def check(self) -> None:
        """Raise UsageError for what cannot be done, before anything is read or asked."""
        from fleetctl.cli.reporting import parse_reports
        from fleetctl.cli.saved_plan import check_out
        from fleetctl.errors import UsageError

        if not self.files:
            raise UsageError("no fleet files", hint="give -f FLEET, or FLEETCTL_FILES")
        if "-" in self.files:
            raise UsageError("standard input has no place in a repository", hint="name the fleet files")
        reading = (*self.files, self.where.inventory)
        check_out(self.out, reading)
        parse_reports(self.reports, beside=self.out, reading=reading)

    def address(self) -> str | None:
        """Return the cluster's address as the job itself tells it."""
        import os

        from fleetctl.cli.connect import ADDRESS_VARIABLE

        return self.where.address or os.environ.get(ADDRESS_VARIABLE)

    def exit_code(self, code: int) -> int:
        """Return what a review whose plan came to `code` ends with: that there are changes fails nothing."""
        from fleetctl.planner.outcome import CHANGES, NOTHING_TO_DO, PARTIAL

        fine = {NOTHING_TO_DO, CHANGES} if self.fail_on is FailOn.BLOCKED else {NOTHING_TO_DO, CHANGES, PARTIAL}
        return 0 if code in fine else code
