"""Where the fleet files stand in git: commit, branch, and whether they have changes that are not committed.

Reads only, and whatever goes wrong means "not known".
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.documents.plan import GitFacts

TIMEOUT_S = 5.0


def git_facts(files: Sequence[str], environ: Mapping[str, str]) -> GitFacts | None:
    """Return commit and branch of the first file's repository, or None where there is none or all came from
    standard input; `dirty` is about the fleet files alone.
    """
    from fleetctl.errors import RevisionError
    from fleetctl.review.git_command import Git
    from fleetctl.spec.sources import STDIN_NAME

    paths = [Path(file).absolute() for file in files if file != STDIN_NAME]
    if not paths:
        return None
    git = Git(str(paths[0].parent), environ)
    try:
        answer = git.run("status", "--porcelain=v2", "--branch", "--untracked-files=all", "--",
                         *(str(path) for path in paths), timeout_s=TIMEOUT_S)
    except RevisionError:
        return None
    return _parse(os.fsdecode(answer.stdout)) if answer.returncode == 0 else None


def _parse(status: str) -> GitFacts | None:
    from fleetctl.documents.plan import GitFacts

    lines = status.splitlines()
    headers = dict(line[2:].split(" ", 1) for line in lines if line.startswith("# ") and " " in line[2:])
    commit, branch = headers.get("branch.oid", ""), headers.get("branch.head")
    if not commit or commit == "(initial)":
        return None
    return GitFacts(
        commit=commit,
        branch=None if branch == "(detached)" else branch,
        dirty=any(not line.startswith("# ") for line in lines),
    )
