"""A saved plan on its way to apply: read, and refused when it has expired or when what it relies on has moved."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.documents.inventory import Inventory
    from fleetctl.documents.plan import Plan

AGAIN = "make a new one: fleetctl plan -f FLEET --out FILE"


def read_saved_plan(path: str) -> Plan:
    """Return the plan in `path`, or on standard input for `-`; raises DocumentError for anything damaged or foreign."""
    from fleetctl.cli.connect import read_stdin
    from fleetctl.documents.loading import load_plan
    from fleetctl.errors import DocumentError

    try:
        data = read_stdin() if path == "-" else Path(path).read_bytes()
        text = data.decode("utf-8")
    except OSError as error:
        raise DocumentError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise DocumentError(f"{path} is not text, so it is not a plan") from None
    return load_plan(text, path)


def refuse_expired(plan: Plan, now: str) -> None:
    """Raise PlanStale when the plan's time is over; both times are RFC 3339, UTC."""
    from datetime import datetime

    from fleetctl.errors import PlanStale

    if plan.expires_at is None:
        return
    expires, moment = (datetime.fromisoformat(text.replace("Z", "+00:00")) for text in (plan.expires_at, now))
    if moment > expires:
        raise PlanStale(f"this plan expired at {plan.expires_at}", hint=AGAIN)


def refuse_stale(plan: Plan, seen: Inventory) -> None:
    """Raise PlanStale, naming what moved, when the plan no longer holds against the inventory of now."""
    from fleetctl.errors import PlanStale
    from fleetctl.planner.stale import moved_since

    moved = moved_since(plan, seen)
    if moved:
        raise PlanStale("this plan is stale: what it relies on has changed", moved=moved, hint=AGAIN)
