"""One comment, or one issue, per marker: found by its first line and its author, updated in place.

The author must match too, because anyone can write a comment that begins with our marker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fleetctl.errors import ForgeError
from fleetctl.forge.http import ForgeClient, json_object, json_objects

GONE = frozenset({404, 410})
TRIES = 3
PAGE = 100


@dataclass(frozen=True, slots=True)
class Posted:
    """A comment or issue that was written. `created` is False if an earlier one was updated."""

    url: str
    created: bool


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment or issue read from the forge; a comment is always open."""

    id: int
    author: str
    body: str
    url: str
    is_open: bool


@dataclass(frozen=True, slots=True)
class Fields:
    """The API fields of an item: the names of its number and text, and what is sent to create, open and close it."""

    number: str = "id"
    text: str = "body"
    created: Mapping[str, object] = field(default_factory=dict)
    updated: Mapping[str, object] = field(default_factory=dict)
    opened: Mapping[str, str] = field(default_factory=dict)
    closed: Mapping[str, str] = field(default_factory=dict)


# GitLab lists the newest first by default; GitHub always lists comments in this order
OLDEST_FIRST = {"sort": "asc", "order_by": "created_at"}
COMMENT = Fields()


@dataclass(frozen=True, slots=True)
class Thread:
    """The comments on one change, or the issues of a repository; methods raise ForgeError if the forge refuses.

    They are listed and created at `path`, and updated with `method` below `item_path`, or below `path` if that is "".
    `author` returns the user who writes our comments; it is called only if a comment has our marker.
    """

    client: ForgeClient
    path: str
    method: str
    author: Callable[[], str]
    query: Mapping[str, str] = field(default_factory=lambda: OLDEST_FIRST)
    fields: Fields = COMMENT
    item_path: str = ""
    lists_one: bool = False
    """The query finds the item itself, such as the change request of a branch; marker and author do not matter."""
    is_listed: Callable[[Mapping[str, Any]], bool] = lambda row: not row.get("system")
    """Return whether a listed row counts; GitLab's own system notes do not."""

    def comments(self) -> Iterator[Comment]:
        """Yield all comments, oldest first, page by page."""
        page, more = 1, True
        while more:
            params: dict[str, str | int] = {"per_page": PAGE, "page": page, **self.query}
            answer = self.client.send("GET", self.path, params=params)
            yield from (self._read(row) for row in json_objects(answer) if self.is_listed(row))
            more = "next" in answer.links or bool(answer.headers.get("x-next-page"))
            page += 1

    def create(self, body: str) -> Comment:
        """Add a comment."""
        sent = {self.fields.text: body, **self.fields.created}
        return self._read(json_object(self.client.send("POST", self.path, body=sent, creates=True)))

    def update(self, comment: Comment, body: str, *, is_open: bool) -> Comment:
        """Give one of our comments a new text and state."""
        state = self.fields.opened if is_open else self.fields.closed
        sent = {self.fields.text: body, **self.fields.updated, **(state if is_open != comment.is_open else {})}
        path = f"{self.item_path or self.path}/{comment.id}"
        return self._read(json_object(self.client.send(self.method, path, body=sent)))

    def _read(self, row: dict[str, Any]) -> Comment:
        """Parse a row. GitHub has `user.login`, null for a deleted account; GitLab has `author.username`."""
        author = row.get("user") or row.get("author") or {}
        name = author.get("login") or author.get("username") or ""
        url = row.get("html_url") or row.get("web_url") or ""
        return Comment(row.get(self.fields.number, 0), name, row.get(self.fields.text) or "", url,
                       row.get("state") != "closed")


def put_comment(thread: Thread, body: str, *, is_open: bool = True, tries: int = TRIES) -> Posted | None:
    """Create or update our comment that begins with the first line of `body`, the marker.

    With `is_open` False an open one is closed; returns None if there is none, as none is created just to be closed.
    A create request that fails may still have created the comment, so each further try reads the thread again.
    """
    try:
        return _put(thread, body, is_open=is_open)
    except ForgeError as error:
        # our comment may have been deleted meanwhile, or the failed request may have taken effect
        may_have_changed = error.status is None or error.status in GONE or error.status >= 500
        if tries == 1 or not may_have_changed:
            raise
    return put_comment(thread, body, is_open=is_open, tries=tries - 1)


def _put(thread: Thread, body: str, *, is_open: bool) -> Posted | None:
    ours = list(thread.comments()) if thread.lists_one else _our_comments(thread, _first_line(body))
    if not ours:
        return Posted(thread.create(body).url, created=True) if is_open else None
    if not thread.lists_one:
        for duplicate in ours[1:]:  # written by two jobs at the same time; it must not show an outdated text
            _update(thread, duplicate, body, is_open=not thread.fields.closed)
    return Posted(_update(thread, ours[0], body, is_open=is_open).url, created=False)


def _our_comments(thread: Thread, marker: str) -> list[Comment]:
    marked = [comment for comment in thread.comments() if _first_line(comment.body) == marker]
    author = thread.author() if marked else ""
    return [comment for comment in marked if comment.author == author]


def _update(thread: Thread, comment: Comment, body: str, *, is_open: bool) -> Comment:
    same = not thread.lists_one and comment.body.replace("\r\n", "\n").rstrip() == body.rstrip()
    if comment.is_open == is_open and (same or not is_open):
        return comment
    return thread.update(comment, body, is_open=is_open)


def _first_line(body: str) -> str:
    return body.partition("\n")[0].rstrip()
