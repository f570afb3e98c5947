"""One comment per marker: found by its first line and its author, updated in place.

Anyone may write a comment that begins with our marker, so the author counts as much as the marker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from fleetctl.errors import ForgeError
from fleetctl.forge.http import ForgeClient, json_object, json_objects

GONE = frozenset({404, 410})
TRIES = 3
PAGE = 100


@dataclass(frozen=True, slots=True)
class Posted:
    """A comment on the forge. `created` False = the earlier comment was updated."""

    url: str
    created: bool


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment as it is on the forge."""

    id: int
    author: str
    body: str
    url: str


@dataclass(frozen=True, slots=True)
class Thread:
    """The comments of one change: listed and created at `path`, updated by `method` below `one`.

    `me` returns the author's name of our comments; it is asked only when a comment has our marker. Each method raises
    ForgeError when the forge refuses.
    """

    client: ForgeClient
    path: str
    one: str
    method: str
    me: Callable[[], str]

    def comments(self) -> Iterator[Comment]:
        """Yield all comments that people or programs wrote, oldest first, page by page."""
        page, more = 1, True
        while more:
            # GitLab has the newest first; GitHub has this order always
            params: dict[str, str | int] = {"per_page": PAGE, "page": page, "sort": "asc", "order_by": "created_at"}
            answer = self.client.send("GET", self.path, params=params)
            yield from (_comment(row) for row in json_objects(answer) if not row.get("system"))
            more = "next" in answer.links or bool(answer.headers.get("x-next-page"))
            page += 1

    def create(self, body: str) -> Comment:
        """Add a comment."""
        return _comment(json_object(self.client.send("POST", self.path, body={"body": body}, creates=True)))

    def update(self, comment_id: int, body: str) -> Comment:
        """Give one of our comments a new text."""
        return _comment(json_object(self.client.send(self.method, f"{self.one}/{comment_id}", body={"body": body})))


def put_comment(thread: Thread, body: str) -> Posted:
    """Make `body` the text of our comment that begins with the same line, the marker; create it where it is missing.

    A forge that fails while it creates may have created all the same, so before another try the thread is read again.
    """
    for attempt in range(TRIES):
        try:
            return _put(thread, body)
        except ForgeError as error:
            if attempt == TRIES - 1 or not _may_have_changed(error):
                raise
    raise AssertionError("the last try returns or raises")


def _put(thread: Thread, body: str) -> Posted:
    marked = [one for one in thread.comments() if _first_line(one.body) == _first_line(body)]
    me = thread.me() if marked else ""
    found = next((one for one in marked if one.author == me), None)
    if found is None:
        return Posted(thread.create(body).url, created=True)
    if found.body.replace("\r\n", "\n").rstrip() == body.rstrip():
        return Posted(found.url, created=False)
    return Posted(thread.update(found.id, body).url, created=False)


def _comment(row: dict[str, Any]) -> Comment:
    """Read a comment. GitHub has `user.login`, null for a deleted account; GitLab `author.username` and no address."""
    author = row.get("user") or row.get("author") or {}
    name = author.get("login") or author.get("username") or ""
    return Comment(row.get("id", 0), name, row.get("body") or "", row.get("html_url", ""))


def _may_have_changed(error: ForgeError) -> bool:
    """Return whether the thread may have changed: our comment was deleted, or a failed request got through."""
    return error.status is None or error.status in GONE or error.status >= 500


def _first_line(body: str) -> str:
    return body.partition("\n")[0].rstrip()
