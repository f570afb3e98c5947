"""Runs git: no lock is taken, nothing a repository configures is run, and only `Fetching` asks a server."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from fleetctl.child import Child
from fleetctl.errors import RevisionError

TIMEOUT_S = 30.0
SERVER_TIMEOUT_S = 120.0
"""How long a server may take to answer."""

# a hook and a file system monitor are programs that the repository's own configuration may name; the commands used
# here know no others: they neither diff nor check anything out. `git status` does: see workflow/git_facts.py
_NOTHING_OF_THE_REPOSITORY = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "--no-replace-objects")
# git leaves small objects and branches to the system, and after a power failure they are empty
_ON_DISK = ("-c", "core.fsync=all")
# these name a repository to a hook; here it is the repository of a file
_OF_ANOTHER = frozenset({
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_CONFIG"})
_QUIET = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0",
          # a partial clone would fetch what it lacks, by whatever command its configuration names
          "GIT_ALLOW_PROTOCOL": "none"}


@dataclass(frozen=True, slots=True)
class Git:
    """The git command in one folder, with the environment of this process."""

    folder: str
    environ: Mapping[str, str]
    timeout_s: float = TIMEOUT_S

    def run(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run one command and return how it ended; raises RevisionError where git is missing, killed or has no answer.
        """
        with self.start(*arguments, stdin=stdin) as child:
            try:
                done = child.wait(self.timeout_s)
            except subprocess.TimeoutExpired:
                raise RevisionError(f"git {arguments[0]} did not answer within {self.timeout_s:g} s") from None
        if done.returncode < 0:
            raise RevisionError(f"git {arguments[0]} was ended by signal {-done.returncode}")
        return done

    def start(self, *arguments: str, stdin: bytes = b"") -> Child:
        """Start one command; raises RevisionError where git is missing."""
        command = ["git", "-C", self.folder, *_NOTHING_OF_THE_REPOSITORY, *_ON_DISK, *arguments]
        try:
            return Child(command, env=self._environment(), stdin=stdin)
        except FileNotFoundError:
            raise RevisionError("git is not installed here", hint="without git, compare two files: "
                                "fleetctl diff OLD.yaml NEW.yaml") from None
        except OSError as error:
            raise RevisionError(f"git cannot be run: {error.strerror}") from None

    def _environment(self) -> dict[str, str]:
        return {name: value for name, value in self.environ.items() if name not in _OF_ANOTHER} | _QUIET

    def ask(self, *arguments: str) -> str | None:
        """Return what one command prints, without the last line end; None where it fails."""
        done = self.run(*arguments)
        return os.fsdecode(done.stdout).removesuffix("\n") if done.returncode == 0 else None


class Fetching(Git):
    """Git that may ask a server, by the protocols people clone with; it never asks a person."""

    __slots__ = ()

    def _environment(self) -> dict[str, str]:
        asked = {"GIT_SSH_COMMAND": "ssh -oBatchMode=yes", **super()._environment()}
        return {**asked, "GIT_ALLOW_PROTOCOL": "https:http:ssh:git:file"}


def error_line(done: subprocess.CompletedProcess[bytes]) -> str:
    """Return what git printed about a failure: the first line; for a push what was refused, and the server's word."""
    lines = [line.strip() for line in done.stderr.decode(errors="backslashreplace").splitlines()
             if line.strip() and not line.startswith("To ")]
    refused = next((line for line in lines if line.startswith("! [")), None)
    if refused:
        why = (line for line in lines if line.startswith("remote: ") and any(map(str.isalnum, line[8:])))
        return "; ".join([refused, *list(why)[:1]])
    return lines[0].removeprefix("fatal: ") if lines else f"git ended with {done.returncode}"
