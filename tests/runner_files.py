"""The files that a runner of GitHub Actions gives to a step, read as the runner reads them."""

from __future__ import annotations

from pathlib import Path


def read_outputs(path: str | Path) -> dict[str, str]:
    """Return the outputs in a GITHUB_OUTPUT file, each written as NAME<<DELIMITER, its lines, DELIMITER."""
    found, lines = {}, iter(text_of(path).split("\n"))
    for line in lines:
        name, mark, delimiter = line.partition("<<")
        if mark:
            value: list[str] = []
            while (inner := next(lines)) != delimiter:
                value.append(inner)
            found[name] = "\n".join(value)
    return found


def text_of(path: str | Path) -> str:
    """Return the content of a file; empty if there is no such file."""
    return Path(path).read_text(encoding="utf-8") if path and Path(path).exists() else ""
