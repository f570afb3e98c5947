"""The git state of the fleet files: commit, branch, and whether they have uncommitted changes.

Reads only and runs no program that the repository configures. Any failure means "unknown".
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from fleetctl.documents.plan import GitFacts
from fleetctl.errors import RevisionError
from fleetctl.fleetfile.sources import STDIN_NAME
from fleetctl.review.git_command import Git

TIMEOUT_S = 5.0
NO_SUCH_KEY = 1
TRUSTED_SCOPES = frozenset({"system", "global", "command"})
"""Scopes of git's configuration that a repository cannot set."""


def git_facts(files: Sequence[str], environ: Mapping[str, str]) -> GitFacts | None:
    """Return commit and branch of the first file's repository, or None if there is none or all files are standard
    input; `dirty` covers the fleet files alone.
    """
    paths = [Path(file).absolute() for file in files if file != STDIN_NAME]
    if not paths:
        return None
    git = Git(str(paths[0].parent), environ, TIMEOUT_S)
    try:
        unfiltered = _without_filters(git)
        if unfiltered is None:
            return None
        answer = git.run(*unfiltered, "status", "--porcelain=v2", "--branch", "--untracked-files=all", "--ignored",
                         "--", *(str(path) for path in paths))
    except RevisionError:
        return None
    lines = answer.stdout.decode(errors="backslashreplace").splitlines() if answer.returncode == 0 else []
    headers = dict(line[2:].split(" ", 1) for line in lines if line.startswith("# ") and " " in line[2:])
    commit, branch = headers.get("branch.oid", ""), headers.get("branch.head")
    if not commit or commit == "(initial)":
        return None
    return GitFacts(commit=commit, branch=None if branch == "(detached)" else branch,
                    dirty=any(not line.startswith("# ") for line in lines))


def _without_filters(git: Git) -> list[str] | None:
    """Return options for `git` that turn off the filters this repository configures; None if that is impossible.

    A filter is a program that `git status` runs on a file to see whether it has changed. Filters that the user has set
    up for all repositories, such as Git LFS, stay. A file whose filter is off is dirty unless its time shows otherwise.
    """
    answer = git.run("config", "-z", "--show-scope", "--name-only", "--get-regexp", r"^filter\.")
    if answer.returncode not in (0, NO_SUCH_KEY):
        return None
    words = os.fsdecode(answer.stdout).split("\0")
    names = {name.rpartition(".")[0] for scope, name in zip(words[::2], words[1::2], strict=False)
             if scope not in TRUSTED_SCOPES}
    if any("=" in name for name in names):  # git would end the name at the first "="
        return None
    off = ("clean=", "process=", "required=false")
    return [word for name in sorted(names) for setting in off for word in ("-c", f"{name}.{setting}")]
