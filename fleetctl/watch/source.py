"""The source of a watcher's fleet files: the newest commit of a branch, or files on this disk."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from fleetctl.child import Child
from fleetctl.documents.canonical import sha256_hex, short_commit
from fleetctl.documents.plan import GitFacts
from fleetctl.errors import RevisionError
from fleetctl.fleetfile.load import LoadedFleet
from fleetctl.inventory.access import without_secret
from fleetctl.review.git_command import MOST_OUTPUT, SERVER_TIMEOUT_S, Fetching, Git, check
from fleetctl.review.git_discovery import own_git_dir
from fleetctl.review.revisions import Commit, Repository
from fleetctl.watch.load_process import Clone, Inputs, Inspect, inspect_here

PATIENCE_S = 10.0
"""How long a look waits for the server. A longer fetch continues in the background."""
_KEY = re.compile(r"\b(?:with|using) (\S+ key \S+)")
_NO_REASON = re.compile(r"""Good "git" signature|gpg: (Signature made|\s*using|\s*issuer|Good signature|\s*aka )""")
STALE_S = 2 * SERVER_TIMEOUT_S
"""The age at which a lock or partial pack is stale: none of our git processes runs that long."""
AGAIN_S = 600.0
"""The time between two tries to make a clone again that seems damaged: the repository itself may be damaged instead."""
_DAMAGED = re.compile(
    r"inflate|corrupt|damaged|broken|malformed|garbage|truncated|too (short|small)|is empty|null sha1|loose object|"
    r"missing (blob|tree|commit|object)|(bad|invalid) (object|ref|pack|index|tree|signature|config|sha1)|packfile|"
    r"(unable to|could not|cannot|failed to) (read|find|parse|unpack|open|load|traverse|resolve ref)|pack has|"
    r"not a git repository|not a valid object|does not match (index|pack)|did not send all necessary|unresolved deltas",
    re.IGNORECASE)
"""What git says of a damaged clone, and at times of other troubles: a new clone must be whole to take its place."""
_ELSEWHERE = re.compile("(could not|cannot) read (from remote|username|password)", re.IGNORECASE)
FRESH, COMPLETE, MOVING, GOOD = "fresh", "complete", "moving", "fleetctl-good"
"""In a clone: the folder of its successor, with a file that says how far it is; and the last good commits of clones
before it, which may be gone from the repository."""
_COMMIT = re.compile("[0-9a-f]{40,64}")
_OF_A_CLONE = frozenset({
    "HEAD", "FETCH_HEAD", "config", "description", "hooks", "info", "objects", "refs", "packed-refs", "branches",
    "logs", "shallow", "gc.log", "gc.pid", FRESH, GOOD})


class WatchedSource(ABC):
    """The fleet files and their revisions. By default every revision may be used and none is remembered."""

    paths: Sequence[str]
    """The fleet files and folders, as given."""

    @abstractmethod
    def newest(self) -> str:
        """Return the newest revision; raises RevisionError when it cannot be determined."""

    @abstractmethod
    def load(self, revision: str) -> LoadedFleet:
        """Return the fleet of a revision, without its documents; raises RevisionError if it could not be judged."""

    def fault(self, revision: str) -> str:  # noqa: ARG002  files on a disk have no author
        """Return why a revision must not be used, whatever its files contain; empty = it may be used."""
        return ""

    def accept(self, revision: str) -> None:  # noqa: B027
        """Remember a revision as the last good one."""

    def remembered(self) -> str | None:
        """Return the last good revision, remembered by any equal watch; None if there is none."""
        return None

    def facts(self, revision: str) -> GitFacts | None:  # noqa: ARG002
        """Return the commit for the plan; None = planning determines it."""
        return None

    def close(self) -> None:  # noqa: B027
        """End a running fetch."""


@dataclass(slots=True)
class Files(WatchedSource):
    """Files and folders on this disk; a revision is a digest of their names, sizes and times."""

    paths: Sequence[str]
    inspect: Inspect = inspect_here
    _composed_of: Sequence[str] = ()
    _known_as: tuple[str, str] = ("", "")
    """The digest right after the last load, and the revision that was loaded."""

    def newest(self) -> str:
        """Return the digest, which includes the files from which the fleet was last composed."""
        digest = self._digest()
        return self._known_as[1] if digest == self._known_as[0] else digest

    def _digest(self) -> str:
        files = [file for path in self.paths for file in ([path, *_below(path)])]
        return sha256_hex("\n".join(
            f"{path} {_state(path)}" for path in sorted({*files, *self._composed_of})).encode())[:12]

    def load(self, revision: str) -> LoadedFleet:
        """Return the fleet as it is on the disk."""
        loaded = self.inspect(Inputs(self.paths))
        unchanged = self.newest() == revision
        fleet = loaded.fleet
        self._composed_of = ([source.path for source in (*fleet.files, *fleet.house_rules, *fleet.descriptions)]
                             if fleet else
                             [*{*self._composed_of, *(error.file for error in loaded.errors)}])
        if unchanged:  # the load has only found more files to look at, which is no news
            self._known_as = self._digest(), revision
        return loaded


def _below(path: str) -> list[str]:
    try:
        return [entry.path for entry in os.scandir(path)] if Path(path).is_dir() else []
    except OSError:
        return []


def _state(path: str) -> str:
    try:
        status = Path(path).stat()
    except OSError as error:
        return str(error.strerror)
    return f"{status.st_ino} {status.st_size} {status.st_mtime_ns}"


@dataclass(slots=True)
class Branch(WatchedSource):
    """A branch (or another ref) of a repository, fetched into a bare clone in `folder`; nothing is checked out.

    `signed` = use only commits whose signature git can verify; `rewind` = also use commits that do not follow the last
    good one. The clone remembers the last good commit separately for each combination of files, rules and `cluster`.
    `clock` in seconds since the epoch.
    """

    url: str
    ref: str
    paths: Sequence[str]
    folder: Path
    environ: Mapping[str, str]
    clock: Callable[[], float]
    signed: bool = False
    rewind: bool = False
    cluster: str = ""
    inspect: Inspect = inspect_here
    _fetch: Child | None = None
    """The running fetch, into `_fetch_into`."""
    _fetch_into: Path | None = None
    _fetch_began: float = 0
    _damage: str = ""
    """Why the clone seems damaged, and is to be made again; empty = it is not."""
    _not_before: float = 0
    """When a new clone may be tried again."""

    @property
    def key(self) -> str:
        """Return a digest that distinguishes this watch from others of the same clone."""
        return sha256_hex(repr((*self.paths, self.signed, self.rewind, self.cluster)).encode())[:16]

    def newest(self) -> str:
        """Fetch, and return the newest commit; raises RevisionError, also while the server has not answered yet.

        A clone that seems damaged is made again at the look after the one that reports it.
        """
        try:
            return self._cloned_again() if self._damage else self._newest()
        except RevisionError as error:
            raise self._with_damage(error) from None

    def _newest(self) -> str:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RevisionError(f"the clone in {self.folder} cannot be created: {error.strerror}") from None
        self._adopt_fresh()
        before = self._commit_at("newest")
        try:
            self._run_fetch(self.folder)
        except RevisionError as error:
            if self._removed_stale():
                return self._newest()
            if self._commit_at("newest") == before:  # otherwise another watch of the clone has just fetched it
                message = error.message.replace(self.url, without_secret(self.url))
                raise RevisionError(message, hint=error.hint) from None
        commit = Repository(self._git()).find(self._ref("newest"))
        if commit is None:
            raise RevisionError(f"{self.ref} of {without_secret(self.url)} is not a commit")
        return commit.id

    def _run_fetch(self, folder: Path) -> None:
        git_dir = own_git_dir(folder, self.environ)
        if not (folder / "HEAD").is_file():
            folder.mkdir(exist_ok=True)
            Git(git_dir, self.environ).do("init", "--bare", "--quiet")
        if self._fetch_into != folder:
            self.close()
        if self._fetch is None:
            self._fetch_began, self._fetch_into = self.clock(), folder
            self._fetch = Fetching(git_dir, self.environ).start(
                "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-gc", "--no-recurse-submodules",
                "--", self.url, f"+{self.ref}:{self._ref('newest')}")
        try:
            done = self._fetch.wait(PATIENCE_S, MOST_OUTPUT)
        except subprocess.TimeoutExpired:
            if not 0 <= self.clock() - self._fetch_began < SERVER_TIMEOUT_S:  # or the clock was set back
                self.close()
            raise RevisionError(f"git fetch: no answer within {PATIENCE_S:g} s") from None
        except OSError as error:
            self.close()
            raise RevisionError(f"git fetch: {error.strerror}") from None
        self.close()
        check(done, "fetch")

    def close(self) -> None:
        """End the running fetch."""
        if self._fetch is not None:
            self._fetch.end()
            self._fetch = None

    def _removed_stale(self) -> bool:
        """Remove the locks and partial packs of a killed git process; return whether there were any."""
        try:
            stale = [file for name in ("*.lock", "tmp_pack_*") for file in self.folder.rglob(name)
                     if self.clock() - file.stat().st_mtime > STALE_S]
            for file in stale:
                file.unlink()
        except OSError:
            return False
        return bool(stale)

    def _with_damage(self, error: RevisionError) -> RevisionError:
        """Return the error, with what follows from it if the clone seems damaged."""
        said = error.message
        if self._damage or not _DAMAGED.search(said) or _ELSEWHERE.search(said) or self.clock() < self._not_before:
            return error
        if not self._is_own_clone():
            return RevisionError(said, hint=f"if {self.folder} is only a clone, remove it: the watch makes another")
        self._damage = said
        return RevisionError(f"{said}; the clone in {self.folder} may be damaged, and is made again", hint=error.hint)

    def _is_own_clone(self) -> bool:
        """Return whether the folder has nothing but a clone of ours: only our references, and no files of others."""
        try:
            strange = {entry.name for entry in self.folder.iterdir()} - _OF_A_CLONE
            names = [name for name, _ in self._references()]
            is_empty = not any(file.is_file() for file in (self.folder / "objects").rglob("*"))
        except OSError:
            return False
        return (is_empty or bool(names)) and all(name.startswith("refs/fleetctl/") for name in names) and all(
            name.endswith(".lock") for name in strange)

    def _references(self) -> Iterator[tuple[str, str]]:
        """Yield the references and their commits without git, which may refuse to read a damaged clone."""
        with suppress(FileNotFoundError):
            for line in (self.folder / "packed-refs").read_text(errors="replace").splitlines():
                commit, _, name = line.partition(" ")
                if name.startswith("refs/"):
                    yield name, commit
        for file in (self.folder / "refs").rglob("*"):
            if file.is_file():
                yield str(file.relative_to(self.folder)), file.read_text(errors="replace").strip()

    def _cloned_again(self) -> str:
        """Fetch into a new clone within the damaged one, and put it in its place once it is whole."""
        fresh = self.folder / FRESH
        try:
            self._run_fetch(fresh)
            good = {name.split("/")[2]: commit for name, commit in self._references()
                    if name.startswith("refs/fleetctl/") and name.endswith("/good") and _COMMIT.fullmatch(commit)}
            (fresh / GOOD).write_text(json.dumps({**self._good_before(), **good}))
            (fresh / COMPLETE).touch()
        except (RevisionError, OSError) as error:
            if self._fetch is None:  # it has failed; otherwise it goes on
                shutil.rmtree(fresh, ignore_errors=True)
                self._damage, self._not_before = "", self.clock() + AGAIN_S
            raise RevisionError(str(error)) from None if isinstance(error, OSError) else error
        self._damage = ""
        return self._newest()

    def _adopt_fresh(self) -> None:
        """Put a complete new clone in the place of the damaged one; after a kill, the next look continues."""
        fresh = self.folder / FRESH
        if not fresh.is_dir():
            return
        try:
            with _locked(self.folder):  # other watches may use the clone
                if (fresh / COMPLETE).exists():
                    for entry in self.folder.iterdir():
                        if entry.name != FRESH:
                            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
                    (fresh / COMPLETE).rename(fresh / MOVING)
                if (fresh / MOVING).exists():
                    for entry in fresh.iterdir():
                        if entry.name != MOVING:
                            entry.rename(self.folder / entry.name)
                    shutil.rmtree(fresh)
        except OSError as error:
            raise RevisionError(f"the clone in {self.folder} cannot be replaced: {error.strerror}") from None

    def _good_before(self) -> dict[str, str]:
        """Return the last good commits by key, of clones before this one."""
        try:
            stored = json.loads((self.folder / GOOD).read_text())
        except (OSError, ValueError):
            return {}
        return {str(key): str(commit) for key, commit in stored.items()} if isinstance(stored, dict) else {}

    def load(self, revision: str) -> LoadedFleet:
        """Return the fleet of a commit, read from the clone."""
        clone = Clone(str(self.folder), self.environ, Commit(self.ref, revision))
        try:
            return self.inspect(Inputs(self.paths, clone))
        except RevisionError as error:
            raise self._with_damage(error) from None

    def fault(self, revision: str) -> str:
        """Report a commit that rewinds the branch, or has no signature that git can verify."""
        try:
            return self._fault(revision)
        except RevisionError as error:
            raise self._with_damage(error) from None

    def _fault(self, revision: str) -> str:
        git = self._git()
        good = self.remembered()
        if good and not self.rewind and (done := git.run("merge-base", "--is-ancestor", good, revision)).returncode:
            if done.returncode != 1 and (self._commit_at("good") or git.ask("cat-file", "-e", good) is not None):
                check(done, "merge-base")  # git failed, so the branch may be fine
            return (f"it does not follow {short_commit(good)}, the last good commit: the branch was rewound "
                    "(see --allow-rewind)")
        if not self.signed:
            return ""
        Repository(git).objects.commit(revision)  # a huge one, or one of many deltas, ends here
        # a daemon that gpg starts would inherit the limit
        done = replace(git, cpu_s=None).run("verify-commit", revision)
        return why_unverified(done.stderr.decode(errors="backslashreplace")) if done.returncode else ""

    def accept(self, revision: str) -> None:
        """Remember a commit as the last good one, also for the next watch that uses the clone."""
        self._git().do("update-ref", self._ref("good"), revision)

    def remembered(self) -> str | None:
        """Return the last good commit of the clone, or of a damaged one before it."""
        return self._commit_at("good") or self._good_before().get(self.key)

    def facts(self, revision: str) -> GitFacts:
        """Return the commit and the branch."""
        return GitFacts(commit=revision, branch=None if self.ref == "HEAD" else self.ref)

    def _commit_at(self, name: str) -> str | None:
        if not (self.folder / "HEAD").is_file():
            return None  # git would look for a repository in a parent folder
        return self._git().ask("rev-parse", "--verify", "--quiet", self._ref(name))

    def _ref(self, name: str) -> str:
        return f"refs/fleetctl/{self.key}/{name}"

    def _git(self) -> Git:
        return Git(own_git_dir(self.folder, self.environ), self.environ)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def why_unverified(printed: str) -> str:
    """Return why a commit is not used, from what `git verify-commit` printed: the reasons, and the key if it has one.

    A signature by an unknown key is good, too, and git says so first.
    """
    lines = list(dict.fromkeys(line.strip() for line in printed.splitlines() if line.strip()))
    if not lines:
        return "it is not signed"
    reasons = [line.removeprefix("gpg: ") for line in lines if not _NO_REASON.match(line)] or ["git gives no reason"]
    signed_with = _KEY.search(printed)
    if not signed_with:
        about = ""
    elif "No principal matched." in lines:
        about = f": {signed_with[1]} is not among the allowed signers (gpg.ssh.allowedSignersFile)"
    else:
        about = f": {signed_with[1]}"
    return f"its signature cannot be verified: {'; '.join(reason.rstrip('.') for reason in reasons[:3])}{about}"
