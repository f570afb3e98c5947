"""The environment, home folder, clock and standard input of this process, as an `Invocation`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from fleetctl.cli import signals
from fleetctl.cli.console import say, working
from fleetctl.errors import FleetctlError, UsageError
from fleetctl.fleetfile.file_tree import MAX_BYTES
from fleetctl.workflow.invocation import Invocation

_context: str | None = None
_command: str | None = None


def remember_command(name: str | None, context: str | None) -> None:
    """Remember the word of the command, such as `scale`, and the `--context` before it; None = not given."""
    global _command, _context
    _command, _context = name, context


def choose_context(name: str) -> None:
    """Remember a `--context` after the word of the command."""
    global _context  # noqa: PLW0603  a process has one command line
    _context = name


def this_command() -> str | None:
    """Return the word of the command; `ci apply` is an apply."""
    return "apply" if _command == "ci" else _command


def this_invocation() -> Invocation:
    """Return the environment, clock and streams of this process."""
    return Invocation(os.environ, home_folder(), now_text, read_stdin, say, lambda: signals.received, _context, working)


def invocation_on_one_cluster(address: str | None) -> Invocation:
    """Return `this_invocation` for a verb that takes something away; `address` = --address.

    Raises UsageError if --context names another cluster than --address or FLEETCTL_ADDRESS.
    """
    from fleetctl.workflow.contexts import refuse_two_clusters  # contexts, which many commands do not need

    invocation = this_invocation()
    refuse_two_clusters(invocation, address)
    return invocation


def read_stdin() -> bytes:
    """Return all of standard input; raises FleetctlError if it is too large."""
    data = sys.stdin.buffer.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise FleetctlError(f"standard input is larger than {MAX_BYTES >> 20} MiB")
    return data


def now_text() -> str:
    """Return the current time: RFC 3339, UTC, whole seconds."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def home_folder() -> Path:
    """Return the home folder; if the user has none, a path that does not exist."""
    return Path(os.path.expanduser("~"))  # noqa: PTH111  Path.home() raises in a container without a passwd entry


def refuse_two_readers(files: Sequence[str], inventory: str | None) -> None:
    """Raise UsageError if standard input is named more than once."""
    if [*files, inventory].count("-") > 1:
        raise UsageError("standard input can be read only once", hint="give `-` once, to --file or to --inventory")
