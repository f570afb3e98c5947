"""A plan's expiry, and the command that makes the plan again with the same options: the hint when it is refused."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from fleetctl.documents.base import as_datetime
from fleetctl.documents.plan import Plan

USUAL_EXPIRY_S = 24 * 3600


def replan_command(plan: Plan, saved_as: str) -> str:
    """Return the command, quoted for a shell; `saved_as` = the file of the plan."""
    options = plan.options
    seconds = valid_for_s(plan)
    flags: list[tuple[str, Sequence[str | None]]] = [
        ("-f", options.files or ["FLEET"]), ("--target", options.targets), ("--exclude", options.excludes),
        ("--selector", [options.selector]), ("--adopt-from", [options.adopt_from]),
        # always explicit: otherwise the fleet file or the environment may choose another cluster
        ("--namespace", [plan.fleet.namespace]), ("--address", [plan.inventory.address]),
        ("--base", [plan.change.base.name if plan.change else None]),
        ("--expires", [None if seconds in {None, USUAL_EXPIRY_S} else f"{seconds}s"]),
    ]
    parts = [part for flag, values in flags for value in values if value for part in (flag, value)]
    parts += ["--force"] * options.force + ["--ignore-cooldown"] * options.ignore_cooldown
    return shlex.join(["fleetctl", "plan", *parts, "--out", saved_as])


def valid_for_s(plan: Plan) -> int | None:
    """Return for how many seconds after its inventory the plan is valid; None = it never expires."""
    if plan.expires_at is None:
        return None
    return int((as_datetime(plan.expires_at) - as_datetime(plan.inventory.observed_at)).total_seconds())


def has_expired(plan: Plan, now: str) -> bool:
    """Return whether the plan has expired at `now` (RFC 3339 with a zone)."""
    return plan.expires_at is not None and as_datetime(now) > as_datetime(plan.expires_at)
