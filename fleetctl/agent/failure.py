"""Why an engine did not start."""

from __future__ import annotations


class StartFailed(Exception):
    """The engine did not become ready; the message holds its last words."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)  # both, so that it survives pickling
        self.code = code

    def __str__(self) -> str:
        return str(self.args[1])
