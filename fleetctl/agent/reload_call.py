"""The request by which an engine reloads: sent once, to the engine alone, and its answer."""

from __future__ import annotations

import http.client
import json
import time
from typing import Any, Callable, Mapping, Optional, Sequence, Tuple

from .failure import StartFailed

RELOAD_FAILED, RELOAD_ENDED = "RELOAD_FAILED", "RELOAD_ENDED"
"""An engine that has not reloaded; one that has ended because of it."""
ANSWER_BYTES, ANSWER_SHOWN = 10_240, 500


def ask_to_reload(
    request: Mapping[str, Any], port: int, hosts: Sequence[str], deadline: float,
    objection: Callable[[str], Optional[str]],
) -> str:
    """Send the request, its variables replaced, to the first host that listens, and return the answer in words.

    `shown` of the request = its path in words: a variable may be a secret. Raises StartFailed for an answer that is no
    success, for none until `deadline` (monotonic), and where `objection` says that another process listens there.
    """
    for host in hosts:
        refused = objection(host)
        if refused:
            raise StartFailed(RELOAD_FAILED, refused)
        left = deadline - time.monotonic()
        if left <= 0:
            raise StartFailed(RELOAD_FAILED, "no time was left to ask its engine")
        connected, status, answer = _send(host, port, request, left)
        if connected:
            break
    said = f"{request['method']} {request.get('shown', request['path'])} on port {port}: {answer}"
    if not 200 <= status < 300:
        raise StartFailed(RELOAD_FAILED, said)
    return said


def _send(host: str, port: int, request: Mapping[str, Any], timeout_s: float) -> Tuple[bool, int, str]:
    """Return whether there was a connection, status and answer; the status is 0 where there was none."""
    body = json.dumps(request["body"]).encode() if request.get("body") is not None else None
    headers = {"User-Agent": "fleetctl-reload", "Connection": "close",
               **({"Content-Type": "application/json"} if body else {})}
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.connect()
    except OSError as error:
        return False, 0, error.__class__.__name__
    ends_at = time.monotonic() + timeout_s
    try:
        connection.request(str(request["method"]), str(request["path"]), body, headers)
        answer = connection.getresponse()
        data = b""
        while len(data) < ANSWER_BYTES and time.monotonic() < ends_at:  # one that never ends counts as it began
            part = answer.read1(ANSWER_BYTES - len(data))
            if not part:
                break
            data += part
        text = data.decode(errors="replace").strip()
    except (OSError, ValueError, http.client.HTTPException) as error:  # ValueError: a path that HTTP cannot carry
        return True, 0, error.__class__.__name__
    finally:
        connection.close()
    return True, answer.status, f"HTTP {answer.status}{f': {text[:ANSWER_SHOWN]}' if text else ''}"
