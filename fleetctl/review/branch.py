"""A new branch with a commit on top of HEAD, made of objects alone: working tree, index and HEAD stay as they are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fleetctl.errors import RevisionError
from fleetctl.review.git_command import Git, error_line


def commit_on_branch(branch: str, files: Mapping[Path, tuple[str, str]], message: str,
                     environ: Mapping[str, str]) -> str:
    """Return the commit that has these files: what each was, which is to be what HEAD has, and what it becomes.

    Raises RevisionError outside a repository, for a branch that exists, and for a file with changes that are not
    committed.
    """
    git = Git(str(next(iter(files)).absolute().parent), environ)
    root, head = git.ask("rev-parse", "--show-toplevel"), git.ask("rev-parse", "--verify", "--quiet", "HEAD")
    if root is None or head is None:
        raise RevisionError("the fleet files are in no git repository with a commit", hint="leave --branch out")
    if git.ask("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}"):
        raise RevisionError(f"the branch {branch} exists already", hint="choose another name")
    tree = f"{head}^{{tree}}"
    for path, (before, after) in files.items():
        inside = path.resolve().relative_to(Path(root).resolve()).parts
        if git.run("cat-file", "blob", f"{head}:{'/'.join(inside)}").stdout.decode(errors="replace") != before:
            raise RevisionError(f"{path} has changes that are not committed", hint="commit them first")
        blob = _write(git, after.encode(), "hash-object", "-w", "--stdin")
        tree = _with(git, tree, inside, blob)
    commit = _write(git, message.encode(), "commit-tree", tree, "-p", head, "-F", "-")
    _write(git, b"", "branch", "--no-track", "--", branch, commit)
    return commit


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
