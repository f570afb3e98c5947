"""Detection of the forge a run is on, by the environment variables each forge sets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fleetctl.errors import ForgeError
from fleetctl.fleetfile.file_tree import read_whole
from fleetctl.forge.change import ChangeRequest, Forge, ForgeName
from fleetctl.forge.github import GitHub, pull_request
from fleetctl.forge.gitlab import GitLab, merge_request


def find_forge(environ: Mapping[str, str], chosen: ForgeName = "auto", *, number: int | None = None) -> Forge | None:
    """Return the forge this run is on, None outside CI. `number` is the change request, if the forge does not name it.

    Raises ForgeError if the event file cannot be read.
    """
    if chosen == "auto":
        chosen = ("github" if environ.get("GITHUB_ACTIONS") == "true" else
                  "gitlab" if environ.get("GITLAB_CI") == "true" else "none")
    if chosen == "github":
        found = pull_request(environ, read_event(environ.get("GITHUB_EVENT_PATH", "")))
        return GitHub(environ, _with_number(found, number, "#"))
    if chosen == "gitlab":
        return GitLab(environ, _with_number(merge_request(environ), number, "!"))
    return None


def read_event(path: str) -> Mapping[str, Any]:
    """Return the event that started a run of GitHub Actions; empty if there is no such file."""
    if not path or not Path(path).is_file():
        return {}
    try:
        event = json.loads(read_whole(path))
    except (OSError, ValueError):
        raise ForgeError(f"the event file of this run cannot be read: {path}") from None
    return event if isinstance(event, dict) else {}


def _with_number(found: ChangeRequest | None, number: int | None, sign: str) -> ChangeRequest | None:
    """Return the change request with the given number, with the commits of a merge queue's group."""
    if number is None or (found is not None and found.number == number):
        return found
    commits = (found.base, found.head) if found is not None and found.number is None else ()
    return ChangeRequest(number, f"{sign}{number}", *commits)
