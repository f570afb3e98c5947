"""The request by which an engine reloads: sent once, to the engine alone, and its answer."""

from __future__ import annotations

import http.client
import json
import time
from typing import Any, Callable, Mapping, Optional, Sequence, Tuple

from .failure import StartFailed
from .probes import NO_LISTENER

RELOAD_FAILED = "RELOAD_FAILED"
ANSWER_BYTES, ANSWER_SHOWN = 10_240, 500


def ask_to_reload(
    request: Mapping[str, Any], port: int, hosts: Sequence[str], deadline: float,
    objection: Callable[[str], Optional[str]],
) -> str:
    """Send the request, its variables replaced, to the first host that listens, and return the answer in words.

    Raises StartFailed for an answer that is no success, for none until `deadline` (monotonic), and where `objection`
    says that another process listens there.
    """
    for host in hosts:
        refused = objection(host)
        if refused:
            raise StartFailed(RELOAD_FAILED, refused)
        status, answer = _send(host, port, request, max(0.1, deadline - time.monotonic()))
        if status or not answer.endswith(NO_LISTENER):
            break
    said = f"{request['method']} {request['path']} on port {port}: {answer}"
    if not 200 <= status < 300:
        raise StartFailed(RELOAD_FAILED, said)
    return said


def _send(host: str, port: int, request: Mapping[str, Any], timeout_s: float) -> Tuple[int, str]:
    """Return status and answer; the status is 0 where there was none."""
    body = json.dumps(request["body"]).encode() if request.get("body") is not None else None
    headers = {"User-Agent": "fleetctl-reload", "Connection": "close",
               **({"Content-Type": "application/json"} if body else {})}
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request(str(request["method"]), str(request["path"]), body, headers)
        answer = connection.getresponse()
        text = answer.read(ANSWER_BYTES).decode(errors="replace").strip()
    except (OSError, ValueError, http.client.HTTPException) as error:  # ValueError: a path that HTTP cannot carry
        return 0, f"{error.__class__.__name__}"
    finally:
        connection.close()
    return answer.status, f"HTTP {answer.status}{f': {text[:ANSWER_SHOWN]}' if text else ''}"
