"""A real git repository in a folder, for the tests of reviews and of commands."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class GitFolder:
    """A folder with a git repository, in which git runs."""

    folder: Path
    environ: dict[str, str] = field(repr=False)

    def git(self, *arguments: str) -> str:
        done = subprocess.run(["git", "-C", str(self.folder), *arguments], env=self.environ, capture_output=True,
                              text=True, check=True)
        return done.stdout.strip()

    def commit(self, files: dict[str, str | bytes], message: str = "change") -> str:
        """Write the files, commit everything, and return the commit."""
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", message)
        return self.git("rev-parse", "HEAD")
