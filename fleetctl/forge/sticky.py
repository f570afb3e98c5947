"""One comment, or one issue, per marker: found by its first line and its author, updated in place.

Anyone may write a comment that begins with our marker, so the author counts as much as the marker.
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
    """A comment or issue on the forge. `created` False = the earlier one was updated."""

    url: str
    created: bool


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment or issue as it is on the forge; a comment is always open."""

    id: int
    author: str
    body: str
    url: str
    is_open: bool


@dataclass(frozen=True, slots=True)
class Wording:
    """How a forge names the parts of what is kept: number and text, more fields for its creation, and its states."""

    number: str = "id"
    text: str = "body"
    created: Mapping[str, object] = field(default_factory=dict)
    updated: Mapping[str, object] = field(default_factory=dict)
    opened: Mapping[str, str] = field(default_factory=dict)
    closed: Mapping[str, str] = field(default_factory=dict)


# GitLab has the newest first; GitHub has this order always
OLDEST_FIRST = {"sort": "asc", "order_by": "created_at"}
COMMENT = Wording()


@dataclass(frozen=True, slots=True)
class Thread:
    """The comments of one change, or the issues of a repository: listed and created at `path`, updated by `method`
    below `one`, if need be, or there as well.

    `me` returns the author's name of our comments; it is asked only when a comment has our marker. Each method raises
    ForgeError when the forge refuses.
    """

    client: ForgeClient
    path: str
    method: str
    me: Callable[[], str]
    listed: Mapping[str, str] = field(default_factory=lambda: OLDEST_FIRST)
    wording: Wording = COMMENT
    one: str = ""
    of_one: bool = False
    """Whatever is listed is the one to update: the changes of a branch."""
    counts: Callable[[Mapping[str, Any]], bool] = lambda row: not row.get("system")
    """Whether a row that is listed is one of them: a note of GitLab itself is none."""

    def comments(self) -> Iterator[Comment]:
        """Yield all comments that people or programs wrote, oldest first, page by page."""
        page, more = 1, True
        while more:
            params: dict[str, str | int] = {"per_page": PAGE, "page": page, **self.listed}
            answer = self.client.send("GET", self.path, params=params)
            yield from (self._read(row) for row in json_objects(answer) if self.counts(row))
            more = "next" in answer.links or bool(answer.headers.get("x-next-page"))
            page += 1

    def create(self, body: str) -> Comment:
        """Add a comment."""
        sent = {self.wording.text: body, **self.wording.created}
        return self._read(json_object(self.client.send("POST", self.path, body=sent, creates=True)))

    def update(self, found: Comment, body: str, *, is_open: bool) -> Comment:
        """Give one of our comments a new text and state."""
        state = {} if is_open == found.is_open else self.wording.opened if is_open else self.wording.closed
        sent = {self.wording.text: body, **self.wording.updated, **state}
        return self._read(json_object(self.client.send(self.method, f"{self.one or self.path}/{found.id}", body=sent)))

    def _read(self, row: dict[str, Any]) -> Comment:
        """Read a row. GitHub has `user.login`, null for a deleted account; GitLab `author.username`."""
        author = row.get("user") or row.get("author") or {}
        name = author.get("login") or author.get("username") or ""
        url = row.get("html_url") or row.get("web_url") or ""
        return Comment(row.get(self.wording.number, 0), name, row.get(self.wording.text) or "", url,
                       row.get("state") != "closed")


def put_comment(thread: Thread, body: str, *, is_open: bool = True, tries: int = TRIES) -> Posted | None:
    """Make `body` the text of our comment that begins with the same line, the marker; create it where it is missing.

    One that is not to be open is closed, where it is open; None = there is none, and it is not created for that.

    A forge that fails while it creates may have created all the same, so before another try the thread is read again.
    """
    try:
        return _put(thread, body, is_open=is_open)
    except ForgeError as error:
        # our comment may have been deleted meanwhile, or a failed request may have got through
        changed = error.status is None or error.status in GONE or error.status >= 500
        if tries == 1 or not changed:
            raise
    return put_comment(thread, body, is_open=is_open, tries=tries - 1)


def _put(thread: Thread, body: str, *, is_open: bool) -> Posted | None:
    marked = [one for one in thread.comments() if thread.of_one or _first_line(one.body) == _first_line(body)]
    me = thread.me() if marked and not thread.of_one else ""
    ours = [one for one in marked if thread.of_one or one.author == me]
    if not ours:
        return Posted(thread.create(body).url, created=True) if is_open else None
    if not thread.of_one:
        for other in ours[1:]:  # two jobs at once wrote one each: none of them may say what is over
            _bring(thread, other, body, is_open=not thread.wording.closed)
    return Posted(_bring(thread, ours[0], body, is_open=is_open).url, created=False)


def _bring(thread: Thread, found: Comment, body: str, *, is_open: bool) -> Comment:
    same = not thread.of_one and found.body.replace("\r\n", "\n").rstrip() == body.rstrip()
    if found.is_open == is_open and (same or not is_open):
        return found
    return thread.update(found, body, is_open=is_open)


def _first_line(body: str) -> str:
    return body.partition("\n")[0].rstrip()
