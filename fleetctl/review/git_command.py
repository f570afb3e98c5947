"""Runs git on a folder that was verified before, given to it explicitly: git never searches for a repository itself.

It takes no locks, runs no program that the repository's configuration names, and contacts no server; only `Fetching`
does, with that configuration.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field

from fleetctl.child import Child, Limits
from fleetctl.errors import RevisionError
from fleetctl.review.git_discovery import TIMEOUT_S, TRUSTED_SCOPES, GitDir, no_git

SERVER_TIMEOUT_S = 120.0
"""The longest time a server may take to answer."""
MOST_MEMORY = 192 << 20
"""The largest heap of a git process, in bytes: git holds most objects, and all names of a difference, in memory whole,
whatever their size. With that of fleetctl beside it, a command stays below 300 MiB."""
MOST_CPU_S = 5
"""The most processor time of a git process that only reads: a long chain of deltas of large objects costs minutes."""
MOST_OUTPUT = 64 << 20
"""The most that a git command may print, in bytes."""

# Hooks and a file system monitor are programs. By default git does not flush small objects and branches to disk, so a
# power failure can leave them empty. A commit graph repeats, unchecked, what the commits say. A name of two references
# is warned about. The rest keeps git below MOST_MEMORY: it streams larger files, and each of its threads has a heap.
_ALWAYS = ("--no-replace-objects", *(word for setting in (
    "core.fsmonitor=false", "core.hooksPath=/dev/null", "core.fsync=all", "core.commitGraph=false",
    "core.warnAmbiguousRefs=true", "core.bigFileThreshold=16m", "core.deltaBaseCacheLimit=16m",
    "core.preloadIndex=false", "index.threads=1", "pack.threads=2", "pack.windowMemory=32m",
) for word in ("-c", setting)))

# git sets some of these for a hook; they would override the repository of the file, or the history in it
_OTHER_REPOSITORY = frozenset({
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_CONFIG", "GIT_SHALLOW_FILE", "GIT_REPLACE_REF_BASE",
    "GIT_ICASE_PATHSPECS", "GIT_GLOB_PATHSPECS", "GIT_NOGLOB_PATHSPECS"})
_QUIET = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_LITERAL_PATHSPECS": "1",
          # commits with other parents than their own, by a file of the repository
          "GIT_GRAFT_FILE": "/dev/null/none"}
# a partial clone would fetch missing objects, with a command from its configuration
_OFFLINE = {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1", "LC_ALL": "C"}

_PROGRAM = re.compile(
    r"(alias|pager|browser|man|difftool|mergetool|guitool|hook|tar|trailer|trace2|sendemail|credential)\..*"
    r"|.*(command|cmd|program|helper|hook|proxy|editor|pager|askpass|textconv|driver|clean|smudge|process|vcs"
    r"|uploadpack|receivepack|uploadarchive|external|difffilter|fsmonitor|hookspath|packobjectshook|partialclone"
    r"|promisor)|submodule\..*\.update", re.DOTALL)
"""Keys that name a program, a server to ask for objects or a file to write, and those that look like it."""
_FORGED = re.compile(rb"hash mismatch (?:for )?([0-9a-f]{40,64})")
_NO_MEMORY = re.compile(rb"out of memory|cannot allocate memory|mmap failed", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Git:
    """The git command on one repository, with the environment of this process."""

    git_dir: GitDir
    environ: Mapping[str, str]
    timeout_s: float = TIMEOUT_S
    cpu_s: int | None = MOST_CPU_S
    _overrides: list[str] = field(default_factory=list, init=False, repr=False, compare=False)
    """Options that turn off the programs this repository configures; empty = not known yet."""

    def run(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run a command and return its result.

        Raises RevisionError if git is missing, is killed, times out, or needs too much memory.
        """
        return self._finish(self.start(*arguments, stdin=stdin), arguments[0])

    def start(self, *arguments: str, stdin: bytes = b"") -> Child:
        """Start a command; raises RevisionError if git is missing, or if it could run a program of the repository."""
        return self._start([*_ALWAYS, *self._without_programs(), *arguments], stdin)

    def _start(self, words: list[str], stdin: bytes = b"") -> Child:
        environment = self._environment()
        if shutil.which("git", path=environment.get("PATH")) is None:
            raise no_git()
        try:
            return Child(["git", "-C", self.git_dir.top or self.git_dir.path, *words], env=environment,
                         stdin=stdin, limits=Limits(MOST_MEMORY, self.cpu_s))
        except OSError as error:
            raise RevisionError(f"cannot run git: {error.strerror}") from None

    def _finish(self, started: Child, name: str) -> subprocess.CompletedProcess[bytes]:
        with started as child:
            try:
                done = child.wait(self.timeout_s, MOST_OUTPUT)
            except subprocess.TimeoutExpired:
                raise RevisionError(f"git {name} did not answer within {self.timeout_s:g} s") from None
            except OSError as error:
                if error.errno != errno.EFBIG:
                    raise
                raise RevisionError(f"git {name}: {error.strerror}") from None
        if done.returncode < 0:
            raise ended_by(name, -done.returncode)
        if done.returncode and (forged := _FORGED.search(done.stderr)):
            raise forged_object("object", forged[1].decode())
        if done.returncode and _NO_MEMORY.search(done.stderr):
            raise RevisionError(f"git {name} needs more than {MOST_MEMORY >> 20} MiB of memory: {error_line(done)}",
                                hint="an object of this repository is too large; git fsck and "
                                     "git count-objects -v help to find it")
        return done

    def _without_programs(self) -> list[str]:
        """Return options that turn off the programs this repository configures.

        Programs that the user has set up for all repositories, such as Git LFS, stay. A file whose filter is off is
        dirty unless its time shows otherwise.
        """
        if not self.git_dir.ours and not self._overrides:
            done = self._finish(self._start(["config", "-z", "--show-scope", "--name-only", "--list"]), "config")
            check(done, "config")
            words = os.fsdecode(done.stdout).split("\0")
            names = {name for scope, name in zip(words[::2], words[1::2], strict=False) if scope not in TRUSTED_SCOPES}
            values = {name: "" for name in names if _PROGRAM.fullmatch(name)}
            # git fails if it must run a filter that is off
            values |= {f"{name.rpartition('.')[0]}.required": "false" for name in names if name.startswith("filter.")}
            if odd := next((name for name in sorted(values) if "=" in name), None):
                # git would end the name at the first "="
                raise RevisionError(f"the configuration of this repository names a program under {odd!r}, which git "
                                    "cannot be told to ignore", hint="rename or remove that key")
            # never empty afterwards, so that the configuration is read once
            self._overrides[:] = ["-c", "core.askPass=", *(
                word for name, value in sorted(values.items()) for word in ("-c", f"{name}={value}"))]
        return self._overrides

    def _environment(self) -> dict[str, str]:
        git_dir = self.git_dir
        where = {"GIT_DIR": git_dir.path} | ({"GIT_WORK_TREE": git_dir.top} if git_dir.top else {})
        where |= {"GIT_COMMON_DIR": git_dir.common} if git_dir.common != git_dir.path else {}
        return {name: value for name, value in self.environ.items() if name not in _OTHER_REPOSITORY} | where \
            | _QUIET | _OFFLINE

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
    """Git that may contact a server, by the usual protocols, with the repository's own configuration. Never prompts.

    The first fetch of a large repository takes long, so its processor time is not limited.
    """

    __slots__ = ()

    def __init__(self, git_dir: GitDir, environ: Mapping[str, str], timeout_s: float = SERVER_TIMEOUT_S) -> None:
        super().__init__(git_dir, environ, timeout_s, cpu_s=None)

    def _without_programs(self) -> list[str]:
        return []

    def _environment(self) -> dict[str, str]:
        usual = {name: value for name, value in super()._environment().items() if name not in _OFFLINE}
        usual |= {name: self.environ[name] for name in _OFFLINE if name in self.environ}
        return {"GIT_SSH_COMMAND": "ssh -oBatchMode=yes", **usual, "GIT_ALLOW_PROTOCOL": "https:http:ssh:git:file"}


def ended_by(name: str, number: int) -> RevisionError:
    """Return the error for a git command that a signal has ended."""
    hint = f"git may use at most {MOST_CPU_S} s of processor time here" if number in (9, 24) else None
    return RevisionError(f"git {name} was ended by signal {number}", hint=hint)


def forged_object(kind: str, object_id: str) -> RevisionError:
    """Return the error for an object whose content is not what its id says."""
    return RevisionError(f"git {kind} {object_id} is forged or damaged: its content has another hash",
                         hint="nothing is compared with it; clone the repository again")


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
    return lines[0].removeprefix("fatal: ").removeprefix("error: ") if lines else f"git ended with {done.returncode}"
