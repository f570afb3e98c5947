"""The HTTP request that makes an engine reload, sent once and only to the engine, and its answer."""

from __future__ import annotations

import http.client
import json
import socket
import time
from contextlib import suppress
from typing import Any, Callable, Mapping, Optional, Sequence, Tuple

from .failure import StartFailed
from .http_deadline import connect_until

RELOAD_FAILED, RELOAD_ENDED = "RELOAD_FAILED", "RELOAD_ENDED"
"""Codes of an engine that has not reloaded, and of one that ended because of the reload."""
ANSWER_BYTES, ANSWER_SHOWN = 10_240, 500


def ask_to_reload(
    request: Mapping[str, Any], port: int, hosts: Sequence[str], deadline: float,
    objection: Callable[[str], Optional[str]],
) -> str:
    """Send the request, with its variables replaced, to the first host that listens; returns the answer as text.

    `shown` = the path to show in messages: a variable may be a secret. Raises StartFailed for an answer without
    success, for no answer by `deadline` (monotonic), or if `objection` finds that another process listens there.
    """
    for host in hosts:
        refused = objection(host)
        if refused:
            raise StartFailed(RELOAD_FAILED, refused)
        if time.monotonic() >= deadline:
            raise StartFailed(RELOAD_FAILED, "no time was left to ask its engine")
        connected, status, answer = _send(host, port, request, deadline)
        if connected:
            break
    text = f"{request['method']} {request.get('shown', request['path'])} on port {port}: {answer}"
    if not 200 <= status < 300:
        raise StartFailed(RELOAD_FAILED, text)
    return text


def _send(host: str, port: int, request: Mapping[str, Any], deadline: float) -> Tuple[bool, int, str]:
    """Return whether it connected, the HTTP status (0 = no answer), and the answer as text."""
    body = json.dumps(request["body"]).encode() if request.get("body") is not None else None
    headers = {"User-Agent": "fleetctl-reload", "Connection": "close",
               **({"Content-Type": "application/json"} if body else {})}
    try:
        connection = connect_until(deadline, host, port)
    except OSError as error:
        return False, 0, error.__class__.__name__
    data = b""
    try:
        connection.request(str(request["method"]), str(request["path"]), body, headers)
        answer = connection.getresponse()
        with suppress(socket.timeout):  # an endless answer counts by its beginning
            while len(data) < ANSWER_BYTES and (part := answer.read1(ANSWER_BYTES - len(data))):
                data += part
    except (OSError, ValueError, http.client.HTTPException) as error:  # ValueError: a path that HTTP cannot carry
        return True, 0, error.__class__.__name__
    finally:
        connection.close()
    text = data.decode(errors="replace").strip()
    return True, answer.status, f"HTTP {answer.status}{f': {text[:ANSWER_SHOWN]}' if text else ''}"
