"""A complete answer of bounded size, and the text of an error. Loads httpx: import it late."""

from __future__ import annotations

from typing import Any

import httpx

from fleetctl.inventory.json_entries import MAX_VALUES, count_values, parse_text

QUOTED = 200
_BODY_HEADERS = frozenset({"content-encoding", "content-length", "transfer-encoding"})


class Answer(httpx.Response):
    """An httpx response with the body already unpacked, as UTF-8, and JSON parsing that raises only ValueError.

    `via` = the mention of the proxy that it came through, for messages; see `Route`.
    """

    via: str = ""

    def json(self, **_: Any) -> Any:  # noqa: ANN401  as httpx has it
        """Return the body as JSON; raises only ValueError, for a body that is not JSON or is too large."""
        return parse_json(self.content)


def full_answer(head: httpx.Response, body: bytes, via: str = "") -> Answer:
    """Return the answer with the status and headers of `head` and this body; see `Answer` for `via`."""
    headers = [(name, value) for name, value in head.headers.multi_items() if name.lower() not in _BODY_HEADERS]
    answer = Answer(head.status_code, headers=headers, content=body, request=head.request)
    answer.via = via
    answer.encoding = "utf-8"  # a charset could name any of Python's codecs, including decompressing ones
    return answer


def parse_json(body: bytes) -> object:
    """Return the value in `body`; raises ValueError for text that is not JSON, nests too deep or is too large."""
    if len(body) > MAX_VALUES and count_values(body) > MAX_VALUES:
        raise ValueError("too many values")
    return parse_text(body.decode("utf-8-sig"))


def error_text(answer: Answer) -> str:
    """Quote the first line of an error answer, as in `: no such thing`; empty if it has no usable text.

    Before it, the proxy is named. Ray's dashboard has `msg`, GitHub `message`, GitLab `message` or `error`.
    """
    try:
        body = parse_json(answer.content)
        text = next((str(body[key]) for key in ("msg", "message", "error") if body.get(key)), "") if isinstance(
            body, dict) else ""
    except ValueError:
        text = answer.text if "html" not in answer.headers.get("content-type", "") else ""
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return answer.via + (f": {first[:QUOTED]}" if first.isprintable() and first else "")
