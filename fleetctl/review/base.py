"""The fleet as it was at a git revision, for `--base REV`: what a change is measured against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleetctl.review.revisions import parse_range, repository_of
from fleetctl.review.sides import STDIN, Side, at_commit, read_side


def load_base(files: Sequence[str], revision: str, environ: Mapping[str, str]) -> Side:
    """Return the fleet that lay in `files` at `revision`; `REV...` is where REV and HEAD parted.

    Raises RevisionError for a revision that is not here, FleetFileError with every error its files had.
    """
    repository = repository_of(next((file for file in files if file != STDIN), "."), environ)
    between = parse_range(revision)
    if between is None:
        commit = repository.commit(revision)
    else:
        one, dots, other = between
        commit = repository.merge_base(one, other) if dots == "..." else repository.commit(one)
    return read_side(at_commit(commit, repository, files))
