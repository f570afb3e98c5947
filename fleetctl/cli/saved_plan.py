"""Saved plans: written for `apply` by `plan --out`, read again by `apply` and `show`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.documents.plan import Plan


def check_out(out: Path | None, reading: Iterable[str | None] = ()) -> None:
    """Raise UsageError when --out names standard output, as a saved plan holds env values, or what the run reads."""
    from fleetctl.cli.own_inputs import refuse_to_overwrite
    from fleetctl.errors import UsageError

    if str(out) == "-":
        raise UsageError("--out needs a file: a saved plan holds env values", hint="--format json prints it, masked")
    refuse_to_overwrite("--out", out, reading)


def save_plan(plan: Plan, out: Path) -> None:
    """Write the plan for its owner alone, and say what can be done with it."""
    from fleetctl.cli.console import say
    from fleetctl.cli.write_file import write_file
    from fleetctl.render.plan_json import saved_plan_json

    write_file(out, saved_plan_json(plan), mode=0o600)
    refused = _why_refused(plan)
    if refused:
        say("saved", str(out))
        say("warning", f"`fleetctl apply` will refuse it: {refused}")
        return
    until = f" until {plan.expires_at}" if plan.expires_at else ""
    say("saved", f"{out}; run it with `fleetctl apply {out}`{until}")


def read_saved_plan(path: str, *, masked_too: bool = False) -> Plan:
    """Return the plan in `path`, or on standard input for `-`; raises DocumentError for anything damaged or foreign.

    `masked_too` = for the eye alone, what `plan --format json` prints will do.
    """
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
    return load_plan(text, path, masked_too=masked_too)


def origin_of(plan: Plan, now: str) -> str:
    """Say where a saved plan comes from, and until when it may be applied. `now` is RFC 3339."""
    from fleetctl.apply.prepare import has_expired
    from fleetctl.version import __version__

    git = plan.fleet.git
    commit = f"commit {git.commit[:10]}{' with uncommitted changes' if git.dirty else ''}" if git else "no commit known"
    other = "" if plan.tool_version == __version__ else f" (this is {__version__})"
    until = (f"{'expired at' if has_expired(plan, now) else 'good until'} {plan.expires_at}" if plan.expires_at
             else "never expires")
    return f"{plan.plan_id[:10]}, {commit}, made by fleetctl {plan.tool_version}{other}, {until}"


def _why_refused(plan: Plan) -> str | None:
    """Return why an apply would refuse the plan as soon as it is made, or None."""
    from fleetctl.apply.prepare import has_expired
    from fleetctl.cli.connect import now_text
    from fleetctl.planner.policy import refusing

    if has_expired(plan, now_text()):
        return f"its inventory is of {plan.inventory.observed_at}, so it expired at {plan.expires_at}"
    findings = refusing(plan.policy)
    if not findings:
        return None
    return ("a policy of the fleet forbids it" if refusing(plan.policy, force=True)
            else "it is above a threshold of the fleet's policy; make it with --force, or apply it with --force")
