"""A commit on top of HEAD, made from git objects only: working tree, index and HEAD are unchanged. For a new local
branch, or for a branch on a server, which is then pushed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from fleetctl.documents.canonical import short_commit
from fleetctl.errors import RevisionError
from fleetctl.inventory.access import without_secret
from fleetctl.review.git_command import Fetching, Git
from fleetctl.review.git_discovery import NoRepository
from fleetctl.review.git_objects import CommitObject
from fleetctl.review.revisions import Repository, repository_of

TRAILER = "Proposed-by: fleetctl propose"
"""Starts the last line of our commits on a server's branch. A digest of the commit follows, so that only an unmodified
commit is overwritten.
"""

NO_NAME = "git needs an author for the commit: set user.name and user.email with git config"

Changes = Mapping[Path, tuple[str, str]]
"""The old text of each file, which must be that of HEAD, and the new text."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """A branch on a server, to be merged into `into`. `changed` is False if the branch already had the change."""

    commit: str
    into: str
    changed: bool


def commit_on_branch(branch: str, files: Changes, message: str, environ: Mapping[str, str]) -> str:
    """Create a local branch with the commit, and return the commit.

    Raises RevisionError outside a repository, for a branch that exists, and for a file with uncommitted changes.
    """
    repository = _repository_of(files, environ)
    git = repository.git
    if git.ask("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}"):
        raise RevisionError(f"the branch {branch} already exists", hint="choose another name")
    commit = _commit(repository, files, message)
    git.do("branch", "--no-track", "--", branch, commit)
    return commit


def push_to_branch(remote: str, branch: str, into: str | None, files: Changes, message: str,
                   environ: Mapping[str, str]) -> Pushed:
    """Push the commit to a branch on a server, to be merged into `into`; overwrites an earlier proposal.

    `into` None = the server's main branch. Raises RevisionError as `commit_on_branch` does, and if the branch has a
    commit that is not ours, if it is `into` or the main branch, if HEAD has commits that `into` lacks, and if the
    server cannot be reached or refuses, and for files in a submodule: the change that is checked out may have chosen
    the server of a submodule.
    """
    repository = _repository_of(files, environ)
    if repository.submodule:
        raise RevisionError(f"{repository.top} is a submodule of {repository.submodule.around.top}",
                            hint="propose from a clone of the submodule's own repository")
    git = repository.git
    server, ref, shown = _server(git), f"refs/heads/{branch}", without_secret(remote)
    if git.run("check-ref-format", ref).returncode:
        raise RevisionError(f"{branch} is not a valid branch name")
    commit = _commit(repository, files, message, signed=True)
    main, commits = _remote_refs(server, remote, ref, *([f"refs/heads/{into}"] if into else []))
    into, tip = into or main, commits.get(ref, "")
    if branch in {main, into}:
        raise RevisionError(f"{branch} is a branch to merge into", hint="choose another name with --branch")
    base = commits.get(f"refs/heads/{into}") or (commits.get("HEAD") if into == main else None)
    if not base:
        raise RevisionError(f"{shown} has no branch {into}" if into else f"{shown} does not name its main branch",
                            hint="give --into BRANCH")
    server.do("fetch", "--quiet", "--refmap=", "--no-tags", "--no-write-fetch-head", "--no-auto-gc",
              "--no-recurse-submodules", "--", remote, f"refs/heads/{into}", *([ref] if tip else []))
    repository.check_between(base, "HEAD")
    if (ahead := git.ask("rev-list", "--count", f"{base}..HEAD")) != "0":
        raise RevisionError(f"HEAD has commits that {into} of {shown} does not have: {ahead or 'unknown'}",
                            hint=f"merge them first, or propose from a checkout of {into}")
    if tip:
        objects = repository.objects
        if not _is_as_proposed(objects.commit(tip)):
            raise RevisionError(f"the branch {branch} of {shown} ends with a commit that was not made by "
                                f"`fleetctl propose`: {short_commit(tip)}", hint="choose another name with --branch")
        if objects.commit(tip) == objects.commit(commit):
            return Pushed(tip, into, changed=False)
    server.do("push", "--quiet", "--no-verify", "--no-recurse-submodules", f"--force-with-lease={ref}:{tip}", "--",
              remote, f"{commit}:{ref}")
    return Pushed(commit, into, changed=True)


def _server(git: Git) -> Git:
    """Return git with access to the server as the checkout has it: `core.sshCommand` may name the key."""
    server = Fetching(git.git_dir, git.environ)
    ssh = server.ask("config", "core.sshCommand")
    own = {"GIT_SSH_COMMAND": f"{ssh} -oBatchMode=yes"} if ssh else {}
    return Fetching(git.git_dir, {**own, **git.environ})


def _remote_refs(server: Git, remote: str, *refs: str) -> tuple[str, Mapping[str, str]]:
    """Return the main branch of a server, "" if it names none, and the commits of the refs that exist there."""
    answer = server.do("ls-remote", "--symref", "--", remote, "HEAD", *refs)
    rows = [row.split("\t") for row in answer.splitlines() if "\t" in row]
    main = next((first.removeprefix("ref: refs/heads/") for first, name in rows
                 if name == "HEAD" and first.startswith("ref: ")), "")
    return main, {name: first for first, name in rows if not first.startswith("ref: ")}


def _signed(message: str, parent_and_tree: str) -> str:
    text = message.rstrip()
    digest = sha256(f"{parent_and_tree}\n{text}".encode()).hexdigest()
    return f"{text}\n\n{TRAILER} ({digest[:16]})"


def _is_as_proposed(tip: CommitObject) -> bool:
    """Return whether a commit is ours and has not been amended."""
    body = tip.message.rstrip()
    return body == _signed(body.rpartition("\n\n")[0], f"{' '.join(tip.parents)} {tip.tree}")


def _repository_of(files: Changes, environ: Mapping[str, str]) -> Repository:
    try:
        return repository_of(str(next(iter(files)).absolute()), environ)
    except NoRepository:
        raise _nothing_to_commit_on() from None


def _nothing_to_commit_on() -> RevisionError:
    return RevisionError("the fleet files are not in a git repository with a commit",
                         hint="leave out --branch and --open")


def _commit(repository: Repository, files: Changes, message: str, *, signed: bool = False) -> str:
    """Create the commit, on no branch yet; `signed` adds our last line."""
    git, objects, root, head = repository.git, repository.objects, repository.top, repository.find_here("HEAD")
    if root is None or head is None:
        raise _nothing_to_commit_on()
    tree = objects.commit(head.id).tree
    for path, (before, after) in files.items():
        real = path.resolve()
        if not real.is_relative_to(root):
            raise RevisionError(f"{path} is outside of the git repository {root}")
        inside = real.relative_to(root).parts
        entry, depth = objects.entry_at(tree, inside)
        committed = ""
        if entry is not None and entry.is_file and depth == len(inside):
            committed = objects.read(entry.id, "blob").decode(errors="replace")
        if committed not in (before, before.replace("\r\n", "\n")):
            raise RevisionError(f"{path} has uncommitted changes", hint="commit them first")
        # git may check files out with other line ends than it stores
        stored = after if "\r\n" in committed else after.replace("\r\n", "\n")
        blob = git.do("hash-object", "-w", "--stdin", stdin=stored.encode())
        tree = _replaced(repository, tree, inside, blob)
    text = _signed(message, f"{head.id} {tree}") if signed else message
    return git.do("commit-tree", tree, "-p", head.id, "-F", "-", stdin=text.encode(), hint=NO_NAME)


def _replaced(repository: Repository, tree: str, path: tuple[str, ...], blob: str) -> str:
    """Return a copy of the tree with this blob at `path`."""
    rows = []
    for name, entry in repository.objects.tree(tree).items():
        new = entry.id
        if name == path[0]:
            new = blob if len(path) == 1 else _replaced(repository, entry.id, path[1:], blob)
        kind = "tree" if entry.is_folder else "commit" if entry.is_submodule else "blob"
        rows.append(f"{entry.mode:06o} {kind} {new}\t{name}\0")
    return repository.git.do("mktree", "--missing", "-z", stdin=os.fsencode("".join(rows)))
