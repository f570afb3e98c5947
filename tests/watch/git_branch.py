"""A bare repository with a clone that pushes to it, and the source of a watch that follows its branch."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from fleetctl.watch.source import Branch

FLEET = """\
apiVersion: fleetctl/v1
kind: Fleet
metadata: {name: lab}
spec:
  models:
  - key: org/m
    replicas: %s
    workers:
    - name: main
      members: [{resources: {gpus: 1}, engine: {command: [serve]}}]
"""


class Upstream:
    """A bare repository, and a clone that pushes to it."""

    def __init__(self, tmp_path: Path) -> None:
        self.bare, self.work = tmp_path / "repo.git", tmp_path / "work"
        self.environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1",
                        "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a",
                        "GIT_COMMITTER_EMAIL": "a@b"}
        self.git("init", "--quiet", "--bare", "--initial-branch=main", str(self.bare), cwd=tmp_path)
        self.git("clone", "--quiet", str(self.bare), str(self.work), cwd=tmp_path)
        (self.work / "fleets").mkdir()

    def git(self, *arguments: str, cwd: Path | None = None) -> str:
        return subprocess.run(["git", *arguments], cwd=cwd or self.work, env=self.environ, check=True, text=True,
                              capture_output=True).stdout.strip()

    def push(self, text: str, *flags: str) -> str:
        (self.work / "fleets/lab.yaml").write_text(text)
        self.git("add", "-A")
        self.git("commit", "--quiet", "-m", "change", *flags)
        self.git("push", "--quiet", "--force", "origin", "HEAD:main")
        return self.git("rev-parse", "HEAD")


def branch(upstream: Upstream, folder: str = "clone", **settings: bool) -> Branch:
    return Branch(str(upstream.bare), "main", ("fleets",), upstream.work.parent / folder, upstream.environ, time.time,
                  **settings)
