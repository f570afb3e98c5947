"""The fleet as it was at a git revision, for `--base REV`: what a change is measured against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from shlex import quote

from fleetctl.errors import FleetFileError, UsageError
from fleetctl.review.arguments import SURELY_FILES, SURELY_PATHS
from fleetctl.review.inputs import STDIN, Side, at_commit, read_side, refuse_empty
from fleetctl.review.revisions import Commit, Repository, parse_range, repository_of


def load_base(files: Sequence[str], revision: str, environ: Mapping[str, str]) -> Side:
    """Return the fleet in `files` at `revision`; `REV...` is the merge base of REV and HEAD.

    A fleet with errors at that revision is returned as its problems, as a change may be there to fix them. Raises
    RevisionError for a revision that is not here, UsageError for text that is not a single revision.
    """
    refuse_empty(revision, "BASE")
    repository = repository_of(next((file for file in files if file != STDIN), "."), environ)
    place = at_commit(_commit(repository, revision), repository, files)
    try:
        return read_side(place)
    except FleetFileError as error:
        return Side(place.revision, problems=error.problems)


def _commit(repository: Repository, revision: str) -> Commit:
    between = parse_range(revision)
    if between is None:
        if revision.startswith(SURELY_PATHS) or (revision.endswith(SURELY_FILES) and not repository.find(revision)):
            raise UsageError(f"--base {revision}: a git revision is needed, and this is a path",
                             hint=f"two files are compared by `fleetctl diff {quote(revision)} NEW.yaml`")
        return repository.commit(revision)
    one, dots, other = between
    if dots != "..." or other != "HEAD":
        raise UsageError(f"--base {revision}: --base names one revision; the other side is the files as they lie here",
                         hint=f"write {one}, or {one}... for where {one} and HEAD parted; "
                              "`fleetctl diff` compares two revisions")
    return repository.merge_base(one, other)
