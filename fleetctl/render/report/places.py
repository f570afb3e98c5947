"""Paths of findings as a forge has them: relative to the root of the repository, with forward slashes."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Checkout:
    """The folder of the repository, and the one that relative paths are relative to; absolute, "" = not known."""

    root: str = ""
    cwd: str = ""

    def path(self, file: str) -> str | None:
        """Return the path of a file in the repository, as it came for a file outside of it; None for standard input."""
        if file == "<stdin>":
            return None
        path = posixpath.normpath(file)
        if not self.root:
            return path
        whole = posixpath.normpath(posixpath.join(self.cwd or self.root, path))
        root = self.root.rstrip("/") + "/"
        return whole[len(root):] if whole.startswith(root) else path
