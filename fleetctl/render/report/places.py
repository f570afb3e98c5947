"""Paths of findings as forges require them: relative to the root of the repository, with forward slashes."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Checkout:
    """The folder of the repository, and the current folder for relative paths; both absolute, "" if unknown."""

    root: str = ""
    cwd: str = ""

    def path(self, file: str) -> str | None:
        """Return a file's path in the repository, unchanged for a file outside of it; None for standard input."""
        if file == "<stdin>":
            return None
        path = posixpath.normpath(file)
        if not self.root:
            return path
        absolute = posixpath.normpath(posixpath.join(self.cwd or self.root, path))
        root = self.root.rstrip("/") + "/"
        return absolute[len(root):] if absolute.startswith(root) else path
