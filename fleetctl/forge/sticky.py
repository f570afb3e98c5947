"""One comment per marker: found by its first line and its author, brought up to date in place.

Anybody may write a comment that begins with a marker of ours, so the author counts as much as the marker.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from fleetctl.errors import ForgeError
from fleetctl.forge.change import Posted

GONE = frozenset({404, 410})
TRIES = 3


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment as it stands on the forge."""

    id: int
    author: str
    body: str
    url: str


class Thread(Protocol):
    """The comments of one change. Each method raises ForgeError when the forge refuses."""

    def me(self) -> str:
        """Return the name under which our token writes, as in `Comment.author`."""

    def comments(self) -> Iterator[Comment]:
        """Yield all comments, oldest first."""

    def create(self, body: str) -> Comment:
        """Add a comment."""

    def update(self, comment_id: int, body: str) -> Comment:
        """Give one of our comments a new text."""


def put_comment(thread: Thread, body: str) -> Posted:
    """Make `body` the text of our comment that begins with the same line, the marker; write one where there is none.

    A forge that fails while it creates may have created all the same, so before another try the thread is read again.
    """
    for attempt in range(TRIES):
        try:
            return _put(thread, body)
        except ForgeError as error:
            if attempt == TRIES - 1 or not _may_have_changed(error):
                raise
    raise AssertionError("the last try returns or raises")


def find_comment(thread: Thread, marker: str) -> Comment | None:
    """Return our oldest comment whose first line is the marker."""
    marked = [one for one in thread.comments() if _first_line(one.body) == marker]
    me = thread.me() if marked else ""
    return next((one for one in marked if one.author == me), None)


def _put(thread: Thread, body: str) -> Posted:
    found = find_comment(thread, _first_line(body))
    if found is None:
        return Posted(thread.create(body).url, created=True)
    if found.body.replace("\r\n", "\n").rstrip() == body.rstrip():
        return Posted(found.url, created=False)
    return Posted(thread.update(found.id, body).url, created=False)


def _may_have_changed(error: ForgeError) -> bool:
    """Tell whether the thread may be another now: our comment was taken away, or a failed request got through."""
    return error.status is None or error.status in GONE or error.status >= 500


def _first_line(body: str) -> str:
    return body.partition("\n")[0].rstrip()
