"""A command's application, and the foot of its help: examples one can paste, and its exit codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

VERBATIM = "\b"  # the help formatter keeps the lines of a paragraph that begins with it


def command_app(**settings: Any) -> typer.Typer:  # noqa: ANN401  typer's own
    """Return an application for one command, or for a group of commands."""
    # `completion` prints scripts of ours, which know the signs in model keys
    return typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False, **settings)


def epilog(*, examples: Sequence[str], exit_codes: str) -> str:
    """Return the end of a command's help; `exit_codes` is one line such as `0 fine, 1 error, 64 usage`."""
    shown = "\n".join(f"  {example}" for example in examples)
    return f"{VERBATIM}\nExamples:\n{shown}\n\n{VERBATIM}\nExit codes:\n  {exit_codes}"
