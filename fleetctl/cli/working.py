"""A progress line on standard error during slow work; it disappears at the end.

Shown only to a person: on a terminal that can move its cursor, not in CI, not with NO_COLOR.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from fleetctl.cli.console import in_ci, message_console

AFTER_S = 0.7
"""Shorter work shows no line."""


def moves(stream_is_terminal: bool) -> bool:
    """Return whether a stream may show output that is updated in place."""
    return stream_is_terminal and os.environ.get("TERM") != "dumb" and not in_ci(os.environ)


@contextmanager
def working(doing: str) -> Iterator[None]:
    """Show `doing`, such as "planning 60 models", and the time passed while the block runs."""
    if os.environ.get("NO_COLOR") or not moves(sys.stderr.isatty()):
        yield
        return
    from rich.console import Group, RenderableType
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.text import Text

    from fleetctl.render.visible import visible

    begun, spinner = time.monotonic(), Spinner("dots", style="cyan")

    def shown() -> RenderableType:
        passed = time.monotonic() - begun
        spinner.update(text=Text(f"{visible(doing)} {passed:.0f}s", overflow="ellipsis", no_wrap=True))
        return spinner if passed >= AFTER_S else Group()

    with Live(get_renderable=shown, console=message_console(), refresh_per_second=8, transient=True,
              redirect_stdout=False):
        yield
