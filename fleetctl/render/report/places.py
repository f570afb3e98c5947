"""Paths of findings as a forge knows them: from the root of the repository on, with forward slashes."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Checkout:
    """Where the repository lies and what relative paths are relative to; both absolute, "" = not known."""

    root: str = ""
    cwd: str = ""

    def path(self, file: str) -> str | None:
        """Return the file's path in the repository, as it came where it lies outside; None for standard input."""
        if file == "<stdin>":
            return None
        path = posixpath.normpath(file)
        if not self.root:
            return path
        whole = posixpath.normpath(posixpath.join(self.cwd or self.root, path))
        root = self.root.rstrip("/") + "/"
        return whole[len(root):] if whole.startswith(root) else path
