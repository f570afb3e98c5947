"""Loading a revision in a subprocess that ends with its answer, or is killed: what a commit says must not stop a watch.

The watch itself reads no YAML of a commit, keeps none of the memory that reading takes, and looks again after a limit.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from fleetctl.child import Limits, answer_question, ask_module
from fleetctl.errors import RevisionError
from fleetctl.fleetfile.file_tree import DISK, FileTree
from fleetctl.fleetfile.load import LoadedFleet, inspect_fleet
from fleetctl.fleetfile.rule_schema import ENDLESS
from fleetctl.problem import Problem
from fleetctl.review.git_command import Git
from fleetctl.review.git_discovery import own_git_dir
from fleetctl.review.revisions import Commit, GitTree, Repository

LONGEST_S = 12.0
"""How long loading may take: ten seconds of it are for its house rules, which then say which of them did not end."""
GRACE_S = 2.0
"""How long the subprocess may take beyond that: to start, and to notice that its time is over."""
MAX_MEMORY_BYTES = 1 << 30
"""The heap of the subprocess, in bytes; the largest fleet that may be loaded needs half of it.

Not its address space: git inherits the limit, and maps the packs of a repository whatever their size.
"""


@dataclass(frozen=True, slots=True)
class Clone:
    """A commit of a bare clone, with the environment for git."""

    folder: str
    environ: Mapping[str, str]
    commit: Commit

    @property
    def tree(self) -> FileTree:
        """The files of the commit."""
        return GitTree(Repository(Git(own_git_dir(Path(self.folder), self.environ), self.environ)), self.commit)


@dataclass(frozen=True, slots=True)
class Inputs:
    """What to load: files and folders of a clone, or without one of this disk."""

    paths: Sequence[str]
    clone: Clone | None = None


Inspect = Callable[[Inputs], LoadedFleet]
"""Loads a fleet, without the documents it was resolved from; raises RevisionError if that failed for another reason
than the files."""


def inspect_here(inputs: Inputs) -> LoadedFleet:
    """Load in this process."""
    loaded = inspect_fleet(inputs.paths, tree=inputs.clone.tree if inputs.clone else DISK)
    return replace(loaded, documents=())


def inspect_in_subprocess(inputs: Inputs) -> LoadedFleet:
    """Load in a subprocess; that it had to be ended is a problem of the files."""
    clone = replace(inputs.clone, environ=dict(inputs.clone.environ)) if inputs.clone else None
    try:
        question = LONGEST_S, str(Path.cwd()), replace(inputs, clone=clone)
        loaded: LoadedFleet = ask_module("fleetctl.watch.load_process", question, LONGEST_S + GRACE_S,
                                         Limits(MAX_MEMORY_BYTES))
    except subprocess.TimeoutExpired:
        return _ended(LONGEST_S + GRACE_S, inputs)
    except OSError as error:
        raise RevisionError(f"the loading process {error}") from None
    return loaded


def _ended(limit_s: float, inputs: Inputs) -> LoadedFleet:
    return LoadedFleet(None, (Problem(ENDLESS, f"loading the fleet was ended after {limit_s:g} s", inputs.paths[0]),))


class _TimeIsOver(BaseException):
    """Ends git, and the process that checks house rules, on its way out: each is in a session of its own."""


def _interrupt(_signal: int, _frame: object) -> NoReturn:
    raise _TimeIsOver


def _answer(question: tuple[float, str, Inputs]) -> LoadedFleet | RevisionError:
    limit_s, folder, wanted = question
    os.chdir(folder)
    signal.signal(signal.SIGALRM, _interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, limit_s)
        return inspect_here(wanted)
    except RevisionError as error:
        return error
    except _TimeIsOver:
        return _ended(limit_s, wanted)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    answer_question(_answer)
