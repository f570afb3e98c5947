"""A commit on top of HEAD, made of objects alone: working tree, index and HEAD stay as they are. For a new branch here,
or for a branch of a server, which is then pushed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from fleetctl.errors import RevisionError
from fleetctl.inventory.address import without_secret
from fleetctl.review.git_command import SERVER_TIMEOUT_S, Fetching, Git

TRAILER = "Proposed-by: fleetctl propose"
"""Begins the last line of our commits on a server's branch. A digest of the commit follows: only a commit that is still
as it was made is written over.
"""

NO_NAME = "git needs a name for the commit: git config user.name NAME, and user.email"

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
    git.do("branch", "--no-track", "--", branch, commit)
    return commit


def push_to_branch(remote: str, branch: str, into: str | None, files: Changes, message: str,
                   environ: Mapping[str, str]) -> Pushed:
    """Push the commit to a branch of a server, to be merged into another; one that an earlier proposal made is written
    over. `into` None = the server's main branch.

    Raises RevisionError as `commit_on_branch` does, for a branch with a commit of somebody else, for one that is merged
    into, where HEAD has commits that `into` lacks, and where the server cannot be asked or refuses.
    """
    git = _git_of(files, environ)
    server, ref, shown = _server(git), f"refs/heads/{branch}", without_secret(remote)
    if git.run("check-ref-format", ref).returncode:
        raise RevisionError(f"{branch} is not a valid branch name")
    commit = _commit(git, files, message, signed=True)
    main, commits = _asked(server, remote, ref, *[f"refs/heads/{into}"] * bool(into))
    into, tip = into or main, commits.get(ref, "")
    if branch in {main, into}:
        raise RevisionError(f"{branch} is a branch to merge into", hint="choose another name with --branch")
    base = commits.get(f"refs/heads/{into}") or (commits.get("HEAD") if into == main else None)
    if not base:
        raise RevisionError(f"{shown} has no branch {into}" if into else f"{shown} does not say which branch is its "
                            "main one", hint="give --into BRANCH")
    server.do("fetch", "--quiet", "--refmap=", "--no-tags", "--no-write-fetch-head", "--no-auto-gc",
              "--no-recurse-submodules", "--", remote, f"refs/heads/{into}", *[ref] * bool(tip))
    if (ahead := git.ask("rev-list", "--count", f"{base}..HEAD")) != "0":
        raise RevisionError(f"HEAD has commits that {into} of {shown} has not: {ahead or 'unknown'}",
                            hint=f"merge them first, or propose from a checkout of {into}")
    if tip:
        if not _is_as_proposed(git, tip):
            raise RevisionError(f"the branch {branch} of {shown} ends with a commit that `fleetctl propose` has not "
                                f"made: {tip[:10]}", hint="choose another name with --branch")
        if _content(git, tip) == _content(git, commit):
            return Pushed(tip, into, changed=False)
    server.do("push", "--quiet", "--no-verify", "--no-recurse-submodules", f"--force-with-lease={ref}:{tip}", "--",
              remote, f"{commit}:{ref}")
    return Pushed(commit, into, changed=True)


def _server(git: Git) -> Git:
    """Return git that may ask the server as the checkout does: its key may be in `core.sshCommand`."""
    ssh = git.ask("config", "core.sshCommand")
    own = {"GIT_SSH_COMMAND": f"{ssh} -oBatchMode=yes"} if ssh else {}
    return Fetching(git.folder, {**own, **git.environ}, SERVER_TIMEOUT_S)


def _asked(server: Git, remote: str, *refs: str) -> tuple[str, Mapping[str, str]]:
    """Return the main branch of a server, empty where it names none, and the commits of those refs it has."""
    answer = server.do("ls-remote", "--symref", "--", remote, "HEAD", *refs)
    rows = [row.split("\t") for row in answer.splitlines() if "\t" in row]
    main = next((first.removeprefix("ref: refs/heads/") for first, name in rows
                 if name == "HEAD" and first.startswith("ref: ")), "")
    return main, {name: first for first, name in rows if not first.startswith("ref: ")}


def _content(git: Git, commit: str) -> str | None:
    """Return tree, parents and message of a commit: all but its time."""
    return git.ask("show", "--no-patch", "--format=%T %P%n%B", commit)


def _signed(message: str, about: str) -> str:
    """Return a message with our last line; `about` = parent and tree of its commit."""
    text = message.rstrip()
    digest = sha256(f"{about}\n{text}".encode()).hexdigest()
    return f"{text}\n\n{TRAILER} ({digest[:16]})"


def _is_as_proposed(git: Git, tip: str) -> bool:
    """Return whether a commit is ours and as it was made: nobody has amended it."""
    about, _, body = (git.ask("show", "--no-patch", "--format=%P %T%n%B", tip) or "").partition("\n")
    return body.rstrip() == _signed(body.rstrip().rpartition("\n\n")[0], about)


def _git_of(files: Changes, environ: Mapping[str, str]) -> Git:
    return Git(str(next(iter(files)).absolute().parent), environ)


def _commit(git: Git, files: Changes, message: str, *, signed: bool = False) -> str:
    """Make the commit, which no branch has yet; `signed` = with our last line."""
    root, head = git.ask("rev-parse", "--show-toplevel"), git.ask("rev-parse", "--verify", "--quiet", "HEAD")
    if root is None or head is None:
        raise RevisionError("the fleet files are in no git repository with a commit",
                            hint="leave --branch and --open out")
    tree = f"{head}^{{tree}}"
    for path, (before, after) in files.items():
        inside = path.resolve().relative_to(Path(root).resolve()).parts
        committed = git.run("cat-file", "blob", f"{head}:{'/'.join(inside)}").stdout.decode(errors="replace")
        if committed not in (before, before.replace("\r\n", "\n")):
            raise RevisionError(f"{path} has changes that are not committed", hint="commit them first")
        # git may check lines out with other ends than it keeps
        kept = after if "\r\n" in committed else after.replace("\r\n", "\n")
        blob = git.do("hash-object", "-w", "--stdin", stdin=kept.encode())
        tree = _with(git, tree, inside, blob)
    text = _signed(message, f"{head} {tree}") if signed else message
    return git.do("commit-tree", tree, "-p", head, "-F", "-", stdin=text.encode(), hint=NO_NAME)


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
    return git.do("mktree", "-z", stdin=b"".join(row + b"\0" for row in rows))
