"""What a command changes in a file, as `diff -u` shows it."""

from __future__ import annotations

import difflib

from fleetctl.cli.console import write_result


def write_file_diff(file: str, before: str, after: str, new_name: str | None = None) -> None:
    """Write the lines that change to standard output; `new_name` = what the other side is called."""
    lines = before.splitlines(keepends=True), after.splitlines(keepends=True)
    write_result("".join(difflib.unified_diff(*lines, file, new_name or file)))
