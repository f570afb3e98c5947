"""Prints rich's layouts without its padding at line ends, so that output is easy to copy and compare."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, RenderableType
from rich.segment import Segment, Segments


def print_trimmed(renderable: RenderableType, console: Console) -> None:
    """Print `renderable` without trailing blanks."""
    lines = console.render_lines(renderable, pad=False)
    console.print(Segments([part for line in lines for part in (*_trimmed(line), Segment.line())]), end="", crop=False)


def _trimmed(line: Iterable[Segment]) -> list[Segment]:
    parts = list(line)
    while parts and not parts[-1].text.strip(" "):
        parts.pop()
    if parts:
        parts[-1] = Segment(parts[-1].text.rstrip(" "), parts[-1].style)
    return parts
