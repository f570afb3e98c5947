"""A commit on top of HEAD, made of objects alone: working tree, index and HEAD stay as they are. For a new branch here,
or for a branch of a server, which is then pushed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fleetctl.errors import RevisionError
from fleetctl.review.git_command import SERVER_TIMEOUT_S, Fetching, Git, error_line

TRAILER = "Proposed-by: fleetctl propose"
"""The last line of our commits on a server's branch: only such a branch is written over."""

Changes = Mapping[Path, tuple[str, str]]
"""What each file was, which is to be what HEAD has, and what it becomes."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """A branch on a server. `into` = the server's main branch; `changed` False = the branch had the change already."""

    commit: str
    into: str
    changed: bool


def commit_on_branch(branch: str, files: Changes, message: str, environ: Mapping[str, str]) -> str:
    """Return the commit on a new branch here.

    Raises RevisionError outside a repository, for a branch that exists, and for a file with changes that are not
    committed.
    """
    git = _git_of(files, environ)
    if git.ask("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}"):
        raise RevisionError(f"the branch {branch} exists already", hint="choose another name")
    commit = _commit(git, files, message)
    _write(git, b"", "branch", "--no-track", "--", branch, commit)
    return commit


def push_to_branch(remote: str, branch: str, files: Changes, message: str, environ: Mapping[str, str]) -> Pushed:
    """Push the commit to a branch of a server; one that an earlier proposal made is written over.

    Raises RevisionError as `commit_on_branch` does, for a branch with a commit of somebody else, and where the server
    cannot be asked or refuses.
    """
    git = _git_of(files, environ)
    server, ref = Fetching(git.folder, environ), f"refs/heads/{branch}"
    if git.run("check-ref-format", ref).returncode:
        raise RevisionError(f"{branch} is not a valid branch name")
    commit = _commit(git, files, f"{message}\n\n{TRAILER}")
    into, tip = _asked(server, remote, ref)
    if tip:
        _ask_server(server, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-gc",
                    "--no-recurse-submodules", "--", remote, ref)
        if not (git.ask("show", "--no-patch", "--format=%B", tip) or "").rstrip().endswith(TRAILER):
            raise RevisionError(f"the branch {branch} of {remote} ends with a commit that `fleetctl propose` has not "
                                f"made: {tip[:10]}", hint="choose another name with --branch")
        if _content(git, tip) == _content(git, commit):
            return Pushed(tip, into, changed=False)
    _ask_server(server, "push", "--quiet", "--no-verify", "--no-recurse-submodules",
                f"--force-with-lease={ref}:{tip}", "--", remote, f"{commit}:{ref}")
    return Pushed(commit, into, changed=True)


def _asked(server: Git, remote: str, ref: str) -> tuple[str, str]:
    """Return the main branch of a server, and the commit of one of its refs; empty where it has none."""
    rows = [row.split("\t") for row in _ask_server(server, "ls-remote", "--symref", "--", remote, "HEAD", ref)
            .splitlines() if "\t" in row]
    into = next((first.removeprefix("ref: refs/heads/") for first, name in rows
                 if name == "HEAD" and first.startswith("ref: ")), "")
    return into, next((first for first, name in rows if name == ref), "")


def _ask_server(server: Git, *arguments: str) -> str:
    done = server.run(*arguments, timeout_s=SERVER_TIMEOUT_S)
    if done.returncode:
        raise RevisionError(f"git {arguments[0]} failed: {error_line(done)}")
    return done.stdout.decode(errors="replace")


def _content(git: Git, commit: str) -> str | None:
    """Return tree, parents and message of a commit: all but its time."""
    return git.ask("show", "--no-patch", "--format=%T %P%n%B", commit)


def _git_of(files: Changes, environ: Mapping[str, str]) -> Git:
    return Git(str(next(iter(files)).absolute().parent), environ)


def _commit(git: Git, files: Changes, message: str) -> str:
    """Make the commit, which no branch has yet."""
    root, head = git.ask("rev-parse", "--show-toplevel"), git.ask("rev-parse", "--verify", "--quiet", "HEAD")
    if root is None or head is None:
        raise RevisionError("the fleet files are in no git repository with a commit", hint="leave --branch out")
    tree = f"{head}^{{tree}}"
    for path, (before, after) in files.items():
        inside = path.resolve().relative_to(Path(root).resolve()).parts
        if git.run("cat-file", "blob", f"{head}:{'/'.join(inside)}").stdout.decode(errors="replace") != before:
            raise RevisionError(f"{path} has changes that are not committed", hint="commit them first")
        blob = _write(git, after.encode(), "hash-object", "-w", "--stdin")
        tree = _with(git, tree, inside, blob)
    return _write(git, message.encode(), "commit-tree", tree, "-p", head, "-F", "-")


def _with(git: Git, tree: str, path: tuple[str, ...], blob: str) -> str:
    """Return the tree in which the file at `path` is this blob."""
    rows = []
    for row in git.run("ls-tree", "-z", "--full-tree", tree).stdout.split(b"\0")[:-1]:
        about, _, name = row.partition(b"\t")
        mode, kind, old = about.split()
        if name != path[0].encode():
            rows.append(row)
            continue
        new = blob if len(path) == 1 else _with(git, old.decode(), path[1:], blob)
        rows.append(b" ".join((mode, kind, new.encode())) + b"\t" + name)
    return _write(git, b"".join(row + b"\0" for row in rows), "mktree", "-z")


def _write(git: Git, stdin: bytes, *arguments: str) -> str:
    done = git.run(*arguments, stdin=stdin)
    if done.returncode:
        raise RevisionError(f"git {arguments[0]} failed: {error_line(done)}")
    return done.stdout.decode().strip()
