"""Which forge this run is on: each sets variables of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fleetctl.errors import ForgeError
from fleetctl.forge.change import ChangeRequest, Forge, ForgeName
from fleetctl.forge.github import GitHub, pull_request
from fleetctl.forge.gitlab import GitLab, merge_request


def find_forge(environ: Mapping[str, str], chosen: ForgeName = "auto", *, number: int | None = None) -> Forge | None:
    """Return the forge this run is on, None on a desk. `number` = the change, where the forge does not name it.

    Raises ForgeError for an event file that cannot be read.
    """
    if chosen == "auto":
        chosen = ("github" if environ.get("GITHUB_ACTIONS") == "true" else
                  "gitlab" if environ.get("GITLAB_CI") == "true" else "none")
    if chosen == "github":
        found = pull_request(environ, read_event(environ.get("GITHUB_EVENT_PATH", "")))
        return GitHub(environ, _given(found, number, "#"))
    if chosen == "gitlab":
        return GitLab(environ, _given(merge_request(environ), number, "!"))
    return None


def read_event(path: str) -> Mapping[str, Any]:
    """Return the event that started a run of GitHub Actions; empty where there is no such file."""
    if not path or not Path(path).is_file():
        return {}
    try:
        event = json.loads(Path(path).read_bytes())
    except (OSError, ValueError):
        raise ForgeError(f"the event of this run cannot be read: {path}") from None
    return event if isinstance(event, dict) else {}


def _given(found: ChangeRequest | None, number: int | None, sign: str) -> ChangeRequest | None:
    if number is None or (found is not None and found.number == number):
        return found
    return ChangeRequest(number, f"{sign}{number}")
