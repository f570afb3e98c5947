"""The git state of the fleet files: commit, branch, and whether they have uncommitted changes.

Reads only and runs no program that the repository configures. Any failure means "unknown".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fleetctl.documents.plan import GitFacts
from fleetctl.errors import RevisionError
from fleetctl.fleetfile.sources import STDIN_NAME
from fleetctl.review.git_discovery import checkout_of, find_git_dir

TIMEOUT_S = 5.0


def git_facts(files: Sequence[str], environ: Mapping[str, str]) -> GitFacts | None:
    """Return commit and branch of the first file's repository, or None if there is none or all files are standard
    input; `dirty` covers the fleet files alone.
    """
    paths = [Path(file).absolute() for file in files if file != STDIN_NAME]
    if not paths or checkout_of(str(paths[0]), environ) is None:
        return None
    from fleetctl.review.git_command import Git  # outside a repository no git is needed

    try:
        git = Git(find_git_dir(str(paths[0]), environ), environ, TIMEOUT_S)
        answer = git.run("status", "--porcelain=v2", "--branch", "--no-ahead-behind", "--no-renames",
                         "--untracked-files=all", "--ignored", "--ignore-submodules=all",
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
