"""The exception tree. Each class carries its exit code; only `cli/` turns an exception into an exit.

FleetctlError                  1  caused by the user or the cluster; shown without a traceback
├── UsageError                64  flags that do not go together
├── FleetFileError             1  one or more problems in the fleet files, all of them at once
├── RevisionError              1  a git revision was not found, or git failed
├── DocumentError              1  a plan, inventory or event is damaged or of an unknown major version
├── InventoryError             1  the cluster could not be read completely
│   ├── ClusterUnreachable     1
│   ├── ClusterRefused         1  401 or 403, with what to do about it
│   └── PathNotServed          1  404
├── ApplyError                 1  the apply could not be started or followed
├── ForgeError                 1  the forge (GitHub, GitLab) refused a request; never ends a review
├── PolicyRefused              4
├── LockHeld                   5  another apply of this fleet is running
├── PlanStale                  6  what a saved plan relies on has changed
├── PlanUsed                   6  the saved plan was already applied
└── WaitTimeout                7  the client stopped waiting; the apply continues
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from fleetctl.problem import Problem


class FleetctlError(Exception):
    """A message for a person: what was found, what is allowed, what to do next; `listed` = further sentences."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None, listed: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.listed = tuple(listed)


class UsageError(FleetctlError):
    """Flags or arguments that do not go together."""

    exit_code = 64


class FleetFileError(FleetctlError):
    """The fleet files have problems; `problems` holds all of them, in file order."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        noun = "problem" if len(problems) == 1 else "problems"
        super().__init__(f"{len(problems)} {noun} in the fleet files")
        self.problems = tuple(problems)


class RevisionError(FleetctlError):
    """The git revision is not in this clone, or git cannot be used."""


class DocumentError(FleetctlError):
    """The document is damaged, was tampered with, or has a format this version does not know."""


class InventoryError(FleetctlError):
    """The live inventory could not be read completely; nothing may be planned or applied on it.

    `may_pass` = because of an answer that another try may not meet.
    """

    may_pass = False


class ClusterUnreachable(InventoryError):
    """No server answered at the cluster's address."""


class ClusterRefused(InventoryError):
    """The cluster refused this client (401, 403)."""


class PathNotServed(InventoryError):
    """The server at the cluster's address, or a proxy before it, does not serve a path (404)."""


class ApplyError(FleetctlError):
    """The apply could not be started or followed."""


class ForgeError(FleetctlError):
    """The forge refused a request; `status` is its HTTP status, None if there was no answer."""

    def __init__(self, message: str, *, hint: str | None = None, status: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status


class PolicyRefused(FleetctlError):
    """A policy of the fleet forbids this; `listed` has one sentence per policy: which and why."""

    exit_code = 4


class LockHeld(FleetctlError):
    """Another apply of this fleet holds the lock."""

    exit_code = 5


class PlanStale(FleetctlError):
    """What the saved plan relies on has changed; `listed` has one sentence per change."""

    exit_code = 6


class PlanUsed(FleetctlError):
    """This saved plan was already applied; a plan can be applied once."""

    exit_code = 6


class WaitTimeout(FleetctlError):
    """The client stopped waiting; the apply continues in the cluster."""

    exit_code = 7
