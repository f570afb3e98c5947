"""Saved plans: written for `apply` by `plan --out`, read again by `apply` and `show`."""

from __future__ import annotations

import shlex
from pathlib import Path

from fleetctl.documents.loading import load_plan
from fleetctl.documents.plan import Plan
from fleetctl.errors import DocumentError
from fleetctl.fleetfile.file_tree import read_whole
from fleetctl.planner.options import has_expired
from fleetctl.planner.policy import refusing
from fleetctl.render.plan_json import saved_plan_json
from fleetctl.version import __version__
from fleetctl.workflow.invocation import Invocation
from fleetctl.workflow.output_files import write_file


def save_plan(invocation: Invocation, plan: Plan, out: Path, now: str) -> None:
    """Write the plan, readable only by its owner, and print how to apply it; `now` is RFC 3339."""
    write_file(out, saved_plan_json(plan), mode=0o600)
    refused = ""
    if has_expired(plan, now):
        refused = f"its inventory is from {plan.inventory.observed_at}, so it expired at {plan.expires_at}"
    elif refusing(plan.policy):
        refused = ("a policy of the fleet forbids it" if refusing(plan.policy, force=True)
                   else "it exceeds a threshold of the fleet's policy; plan or apply it with --force")
    if refused:
        invocation.say("saved", str(out))
        invocation.say("warning", f"`fleetctl apply` will refuse it: {refused}")
        return
    until = f" until {plan.expires_at}" if plan.expires_at else ""
    invocation.say("saved", f"{out}; run it with `fleetctl apply {shlex.quote(str(out))}`{until}")


def read_saved_plan(invocation: Invocation, path: str, *, masked_too: bool = False) -> Plan:
    """Return the plan in `path`, or on standard input for `-`; raises DocumentError for a file that is not a plan.

    `masked_too` = also accept the output of `plan --format json`, which can be shown but not applied.
    """
    try:
        text = (invocation.stdin() if path == "-" else read_whole(path)).decode("utf-8")
    except OSError as error:
        raise DocumentError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise DocumentError(f"{path} is not UTF-8 text (byte {error.start})") from None
    return load_plan(text, path, masked_too=masked_too)


def origin_of(plan: Plan, now: str) -> str:
    """Return the origin of a saved plan, and until when it may be applied. `now` is RFC 3339."""
    git = plan.fleet.git
    commit = f"commit {git.commit[:10]}{' with uncommitted changes' if git.dirty else ''}" if git else "commit unknown"
    other = "" if plan.tool_version == __version__ else f" (this is {__version__})"
    until = (f"{'expired at' if has_expired(plan, now) else 'valid until'} {plan.expires_at}" if plan.expires_at
             else "never expires")
    return f"{plan.plan_id[:10]}, {commit}, made by fleetctl {plan.tool_version}{other}, {until}"
