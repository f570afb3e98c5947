"""Finds the repository of a file by our own walk, and makes git's check of its owner.

git itself takes any folder that looks like a bare repository on the way, and a change can commit such a folder. `.git`
is a name that git refuses to commit, so only the nearest folder with that entry counts.
"""

from __future__ import annotations

import errno
import os
import posixpath
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from fleetctl.errors import RevisionError
from fleetctl.fleetfile.file_tree import MAX_LINKS, read_whole

TIMEOUT_S = 30.0
TRUSTED_SCOPES = frozenset({"system", "global", "command"})
"""Scopes of git's configuration that a repository cannot set."""
_GITFILE, _MAX_GITFILE = b"gitdir: ", 1 << 16
WITHOUT_GIT = "without git, compare two files: fleetctl diff OLD.yaml NEW.yaml"


class NoRepository(RevisionError):
    """A folder outside of any git repository."""


@dataclass(frozen=True, slots=True)
class GitDir:
    """A verified folder of git; `common` = the same, or the one that all linked worktrees share.

    `top` = the working tree, None for a bare clone. `ours` = made by this program, and so is its configuration.
    """

    path: str
    common: str
    top: str | None
    ours: bool = False


def checkout_of(path: str, environ: Mapping[str, str]) -> Path | None:
    """Return the nearest folder with a `.git` at or above a file or folder, which need not exist anymore.

    It is below the folders that the user's GIT_CEILING_DIRECTORIES name, as git has it.
    """
    start = _nearest_folder(path)
    ceilings = {os.path.realpath(name) for name in environ.get("GIT_CEILING_DIRECTORIES", "").split(":") if name}
    for folder in (start, *start.parents):
        if folder != start and str(folder) in ceilings:
            return None
        if os.path.lexists(folder / ".git"):
            return folder
    return None


def find_git_dir(path: str, environ: Mapping[str, str]) -> GitDir:
    """Return the git folder of the file or folder `path`, which need not exist anymore.

    Raises NoRepository if there is none, RevisionError if it belongs to somebody else and is not trusted.
    """
    start, top = _nearest_folder(path), checkout_of(path, environ)
    if top is None:
        bare = next((folder for folder in (start, *start.parents) if _is_git_dir(str(folder), str(folder))), None)
        hint = (f"{bare} looks like a bare repository, which a change could contain, so it is not used; "
                "use a clone or a worktree of it") if bare else WITHOUT_GIT
        raise NoRepository(f"no git repository at {start}: not a git repository, nor any folder above it", hint=hint)
    git_dir = _read_entry(str(top))
    if git_dir is None:
        raise NoRepository(f"no git repository at {start}: {top}/.git is neither a git folder nor a link to one",
                           hint=WITHOUT_GIT)
    _require_own_links(path, top, start, environ)
    require_owner(git_dir, (str(top), posixpath.join(str(top), ".git"), git_dir.path, git_dir.common), environ)
    return git_dir


def own_git_dir(folder: Path, environ: Mapping[str, str]) -> GitDir:
    """Return the bare clone that this program made in `folder`; raises RevisionError if it is somebody else's."""
    path = os.path.realpath(folder)
    git_dir = GitDir(path, path, None, ours=True)
    require_owner(git_dir, (path,), environ)
    return git_dir


def require_owner(git_dir: GitDir, paths: tuple[str, ...], environ: Mapping[str, str]) -> None:
    """Raise RevisionError unless the user owns all `paths`, or trusts the repository by git's `safe.directory`.

    git makes this check only for repositories that it finds by itself.
    """
    foreign = next((path for path in paths if not _is_own(path, environ)), None)
    trusted = git_dir.top or git_dir.path
    if foreign and not _is_trusted(trusted, environ):
        raise RevisionError(
            f"no git repository at {trusted}: dubious ownership: {foreign} belongs to another user ({_owner(foreign)})",
            hint=f"if you trust it: git config --global --add safe.directory {quote(trusted)}")


def _require_own_links(path: str, top: Path, folder: Path, environ: Mapping[str, str]) -> None:
    """Raise RevisionError if a link in another checkout leads to `folder` in this one, such as a submodule.

    Whoever writes to that checkout may have made the link, and would choose what its files are compared with.
    """
    todo, real, links = list(reversed(posixpath.join(Path.cwd(), _folder_as_given(path)).split("/"))), "/", 0
    while todo:
        name = todo.pop()
        step = posixpath.dirname(real) if name == ".." else posixpath.join(real, "" if name == "." else name)
        if not Path(step).is_symlink() or links >= MAX_LINKS:
            real = step.rstrip("/") or "/"
            continue
        links += 1
        target = os.fspath(Path(step).readlink())
        around = checkout_of(real, environ)
        if around not in (None, top):
            raise RevisionError(f"{step} is a link that leads out of the git repository {around}",
                                hint=f"name the folder that it leads to: -f {quote(str(folder))}")
        todo += reversed(target.split("/"))
        real = "/" if target.startswith("/") else real


def _folder_as_given(path: str) -> str:
    # a file may be a link into another repository: its own folder counts
    return path if Path(path).is_dir() else posixpath.dirname(posixpath.abspath(path))


def _nearest_folder(path: str) -> Path:
    folder = Path(posixpath.realpath(_folder_as_given(path)))
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    return folder


def _read_entry(top: str) -> GitDir | None:
    """Return what `.git` in `top` leads to: itself, or for a linked worktree and a submodule the folder it names."""
    entry = posixpath.join(top, ".git")
    try:
        if Path(entry).is_dir():
            path = os.path.realpath(entry)
        else:
            content = _small_file(entry)
            if not content.startswith(_GITFILE):
                return None
            named = os.fsdecode(content.removeprefix(_GITFILE).rstrip(b"\r\n"))
            path = os.path.realpath(posixpath.join(top, named))
        common_file = posixpath.join(path, "commondir")
        common = (os.path.realpath(posixpath.join(path, os.fsdecode(_small_file(common_file).rstrip(b"\r\n"))))
                  if os.path.lexists(common_file) else path)
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return None
    return GitDir(path, common, top) if _is_git_dir(path, common) else None


def _small_file(path: str) -> bytes:
    if not Path(path).is_file():  # a pipe would block
        raise OSError(errno.EINVAL, "not a regular file", path)
    return read_whole(path, _MAX_GITFILE)


def _is_git_dir(path: str, common: str) -> bool:
    return (os.path.lexists(posixpath.join(path, "HEAD"))
            and all(Path(common, name).is_dir() for name in ("objects", "refs")))


def _is_own(path: str, environ: Mapping[str, str]) -> bool:
    """Return whether a path belongs to this user as git sees it: root also owns what belongs to its `sudo` user."""
    if environ.get("GIT_TEST_ASSUME_DIFFERENT_OWNER", "0") not in ("", "0", "false"):
        return False
    try:
        owner = os.lstat(path).st_uid
    except FileNotFoundError:
        return True  # it was removed meanwhile, which git will report
    except OSError:
        return False
    user = os.geteuid()
    return owner == user or (user == 0 and str(owner) == environ.get("SUDO_UID"))


def _owner(path: str) -> str:
    try:
        return f"uid {os.lstat(path).st_uid}"
    except OSError as error:
        return str(error.strerror)


def _is_trusted(path: str, environ: Mapping[str, str]) -> bool:
    """Return whether `safe.directory` of the user's or the machine's configuration names a folder."""
    # no repository: its own configuration must not vouch for it
    apart = {name: value for name, value in environ.items() if name not in ("GIT_WORK_TREE", "GIT_COMMON_DIR")}
    try:
        done = subprocess.run(
            ["git", "-C", "/", "config", "-z", "--show-scope", "--type=path", "--get-all", "safe.directory"],
            env={**apart, "GIT_DIR": "/dev/null"}, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S,
            check=False)
    except FileNotFoundError:
        raise no_git() from None
    except (OSError, subprocess.TimeoutExpired):
        return False
    words = os.fsdecode(done.stdout).split("\0")
    trusted = False
    for scope, value in zip(words[::2], words[1::2], strict=False):
        if scope in TRUSTED_SCOPES:
            trusted = value != "" and (trusted or _names(value, path))  # an empty value takes back those before it
    return trusted


def _names(value: str, path: str) -> bool:
    """Return whether a value of `safe.directory` names the folder: itself, `*` for all, or `/a/b/*` for those below."""
    if value == "*":
        return True
    if not posixpath.isabs(value):
        return False
    if value.endswith("/*"):
        return path.startswith(posixpath.join(os.path.realpath(value[:-2]), ""))
    return path == os.path.realpath(value)


def no_git() -> RevisionError:
    """Return the error for a machine without git."""
    return RevisionError("git is not installed here", hint=WITHOUT_GIT)
