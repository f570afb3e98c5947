"""A repository, checked out as a forge's runner does: the merge of a pull request into main."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

IDENTITY = {"GIT_AUTHOR_NAME": "Ann", "GIT_AUTHOR_EMAIL": "ann@example.com", "GIT_COMMITTER_NAME": "Ann",
            "GIT_COMMITTER_EMAIL": "ann@example.com", "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CONFIG_SYSTEM": "/dev/null"}


@dataclass(frozen=True)
class Remote:
    """A repository that runners fetch from. No test pushes to it: commits are made directly in its work tree,
    `desk`."""

    desk: Path

    def commit(self, branch: str, text: str, name: str = "fleet.yaml", start: str = "main") -> str:
        """Commit `text` on a branch, which begins at `start` if it is new, and return the commit."""
        if git(self.desk, "branch", "--list", branch):
            git(self.desk, "checkout", "-q", branch)
        elif branch != "main":
            git(self.desk, "checkout", "-q", "-b", branch, start)
        (self.desk / name).write_text(text)
        git(self.desk, "add", name)
        git(self.desk, "commit", "-q", "-m", f"{branch}: {name}")
        return git(self.desk, "rev-parse", "HEAD")

    def check_out(self, target: Path, branch: str, *, depth: int = 2) -> Path:
        """Make the checkout that a runner gets for a pull request of `branch` into main: the merge commit."""
        git(self.desk, "checkout", "-q", "--detach", "main")
        git(self.desk, "merge", "-q", "--no-ff", "-m", f"merge {branch}", branch)
        git(self.desk, "update-ref", "refs/pull/7/merge", "HEAD")
        return self.fetch(target, "refs/pull/7/merge", depth=depth)

    def fetch(self, target: Path, ref: str, *, depth: int = 1) -> Path:
        """Make a checkout of one ref of the remote, `depth` commits deep."""
        target.mkdir()
        git(target, "init", "-q")
        git(target, "remote", "add", "origin", self.desk.as_uri())
        git(target, "fetch", "-q", f"--depth={depth}", "origin", ref)
        git(target, "checkout", "-q", "--detach", "FETCH_HEAD")
        return target

    def merge(self, branch: str) -> str:
        """Merge a branch into main; return the commit."""
        git(self.desk, "checkout", "-q", "main")
        git(self.desk, "merge", "-q", "--no-ff", "-m", f"merge {branch}", branch)
        return git(self.desk, "rev-parse", "HEAD")


def make_remote(tmp_path: Path) -> Remote:
    """Return an empty repository."""
    git(tmp_path, "init", "-q", "-b", "main", str(tmp_path / "desk"))
    return Remote(tmp_path / "desk")


def pull_request_event(path: Path, base: str, head: str, *, fork: bool = False) -> Path:
    """Write the event that starts a job for pull request 7."""
    repository = "mallory/fleet" if fork else "lab/fleet"
    path.write_text(json.dumps({"action": "synchronize", "number": 7, "pull_request": {
        "number": 7, "base": {"sha": base, "ref": "main", "repo": {"full_name": "lab/fleet"}},
        "head": {"sha": head, "ref": "change", "repo": {"full_name": repository}}}}))
    return path


def git(folder: Path, *arguments: str) -> str:
    """Run git in a folder and return its output."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), **IDENTITY}
    done = subprocess.run(["git", *arguments], cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
