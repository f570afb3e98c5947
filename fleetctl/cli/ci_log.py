"""The log of a CI job: text from a fleet file must not steer the runner that reads it.

GitHub's runner obeys lines such as `::error::...`, and `##[error]...` anywhere in a line, on both streams. It can be
told to stop, until a word comes that nobody can guess.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.forge.change import Forge


@contextmanager
def inert_log(forge: Forge | None) -> Iterator[None]:
    """Let nothing that is written here be taken for a command of the runner's.

    Both streams become one: the runner reads them side by side, and what comes late would be read after the end.
    """
    from fleetctl.cli.console import write_result

    if forge is None or forge.name != "GitHub":
        yield
        return
    word = secrets.token_hex(16)
    write_result(f"::stop-commands::{word}\n")
    try:
        with redirect_stderr(sys.stdout):
            yield
    finally:
        write_result(f"::{word}::\n")
