"""The result of a command that a test ran in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from published_schemas import validator


@dataclass(frozen=True)
class Result:
    """The result of a command: its exit code and both streams."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Standard output as JSON lines; each is checked against the published schema of events."""
        found = [json.loads(line) for line in self.out.splitlines()]
        for line in found:
            validator("event").validate(line)
        return found

    @property
    def summary(self) -> dict[str, Any]:
        """The only line of `--format json`; its exit code is that of the command."""
        [line] = self.lines
        assert line["type"] == "runSummary"
        assert line["exitCode"] == self.code
        return line


Cli = Callable[..., Result]
