"""The foot of a command's help: examples one can paste, and its exit codes."""

from __future__ import annotations

from collections.abc import Sequence

VERBATIM = "\b"  # tells the help formatter to keep the lines of this paragraph


def epilog(*, examples: Sequence[str], exit_codes: str) -> str:
    """Return the end of a command's help; `exit_codes` is one line such as `0 fine, 1 error, 64 usage`."""
    shown = "\n".join(f"  {example}" for example in examples)
    return f"{VERBATIM}\nExamples:\n{shown}\n\n{VERBATIM}\nExit codes:\n  {exit_codes}"
