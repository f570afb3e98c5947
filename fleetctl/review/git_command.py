"""Runs git without taking locks or running programs that a repository configures; only `Fetching` contacts servers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from fleetctl.child import Child
from fleetctl.errors import RevisionError

TIMEOUT_S = 30.0
SERVER_TIMEOUT_S = 120.0
"""The longest time a server may take to answer."""

# a repository's configuration may name programs for hooks and a file system monitor. The commands used here run no
# other ones: they print no diff and check nothing out. `git status` runs filters, see workflow/git_facts.py
_NO_PROGRAMS = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "--no-replace-objects")
# by default git does not flush small objects and branches to disk, so a power failure can leave them empty
_ON_DISK = ("-c", "core.fsync=all")
# git sets these for a hook; they would override the repository of the file
_OTHER_REPOSITORY = frozenset({
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_CONFIG"})
_QUIET = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0",
          # a partial clone would fetch missing objects, with a command from its configuration
          "GIT_ALLOW_PROTOCOL": "none"}


@dataclass(frozen=True, slots=True)
class Git:
    """The git command in one folder, with the environment of this process."""

    folder: str
    environ: Mapping[str, str]
    timeout_s: float = TIMEOUT_S

    def run(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run a command and return its result; raises RevisionError if git is missing, killed or times out."""
        with self.start(*arguments, stdin=stdin) as child:
            try:
                done = child.wait(self.timeout_s)
            except subprocess.TimeoutExpired:
                raise RevisionError(f"git {arguments[0]} did not answer within {self.timeout_s:g} s") from None
        if done.returncode < 0:
            raise RevisionError(f"git {arguments[0]} was ended by signal {-done.returncode}")
        return done

    def start(self, *arguments: str, stdin: bytes = b"") -> Child:
        """Start a command; raises RevisionError if git is missing."""
        command = ["git", "-C", self.folder, *_NO_PROGRAMS, *_ON_DISK, *arguments]
        try:
            return Child(command, env=self._environment(), stdin=stdin)
        except FileNotFoundError:
            raise RevisionError("git is not installed here", hint="without git, compare two files: "
                                "fleetctl diff OLD.yaml NEW.yaml") from None
        except OSError as error:
            raise RevisionError(f"cannot run git: {error.strerror}") from None

    def _environment(self) -> dict[str, str]:
        return {name: value for name, value in self.environ.items() if name not in _OTHER_REPOSITORY} | _QUIET

    def ask(self, *arguments: str) -> str | None:
        """Return the output of a command, without the last line end; None if it fails."""
        done = self.run(*arguments)
        return os.fsdecode(done.stdout).removesuffix("\n") if done.returncode == 0 else None

    def do(self, *arguments: str, stdin: bytes = b"", hint: str | None = None) -> str:
        """Return the output of a command, stripped; raises RevisionError if it fails."""
        done = self.run(*arguments, stdin=stdin)
        check(done, arguments[0], hint=hint)
        return done.stdout.decode(errors="replace").strip()


class Fetching(Git):
    """Git that may contact a server, by the usual protocols; it never prompts."""

    __slots__ = ()

    def _environment(self) -> dict[str, str]:
        environment = {"GIT_SSH_COMMAND": "ssh -oBatchMode=yes", **super()._environment()}
        return {**environment, "GIT_ALLOW_PROTOCOL": "https:http:ssh:git:file"}


def check(done: subprocess.CompletedProcess[bytes], command: str, *, hint: str | None = None) -> None:
    """Raise RevisionError if the command failed."""
    if done.returncode:
        raise RevisionError(f"git {command}: {error_line(done)}", hint=hint)


def error_line(done: subprocess.CompletedProcess[bytes]) -> str:
    """Return git's error: the first line, or for a push the refused ref and the server's message."""
    lines = [line.strip() for line in done.stderr.decode(errors="backslashreplace").splitlines()
             if line.strip() and not line.startswith("To ")]
    refused = next((line for line in lines if line.startswith("! [")), None)
    if refused:
        reasons = [line for line in lines if line.startswith("remote: ") and any(map(str.isalnum, line[8:]))]
        return "; ".join([refused, *reasons[:1]])
    return lines[0].removeprefix("fatal: ") if lines else f"git ended with {done.returncode}"
