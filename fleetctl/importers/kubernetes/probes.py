"""Probes of containers: readiness and liveness map one to one, a startup probe becomes the time an engine may take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fleetctl.documents.quantity import number_in
from fleetctl.importers.reading import Reading

Texts = Callable[[Reading, str], list[str]]
"""How the list of texts under a key is read, with our names of its variables."""

_SECONDS = {"periodSeconds": "period", "timeoutSeconds": "timeout"}
_DEFAULT_PERIOD, _DEFAULT_TIMEOUT, _DEFAULT_FAILURES = 10, 1, 3


def readiness(container: Reading, texts: Texts) -> dict[str, Any] | None:
    """Return the readiness probe as this format has it; None where it is missing or has no counterpart."""
    found = _probe(container, "readinessProbe", texts)
    container.child("readinessProbe").lose("failureThreshold", "readiness is asked until startupTimeout is over")
    return found


def liveness(container: Reading, texts: Texts) -> dict[str, Any] | None:
    """Return the liveness probe, with Kubernetes' rhythm written out: ours is quicker, and would restart more."""
    found = _probe(container, "livenessProbe", texts)
    if found is None:
        return None
    threshold = container.child("livenessProbe").whole("failureThreshold")
    rhythm = {"period": f"{_DEFAULT_PERIOD}s", "timeout": f"{_DEFAULT_TIMEOUT}s"}
    limit = {"failureThreshold": threshold} if threshold else {}
    return {**found, **{key: value for key, value in rhythm.items() if key not in found}, **limit}


def _probe(container: Reading, key: str, texts: Texts) -> dict[str, Any] | None:
    if key not in container:
        return None
    source = container.child(key)
    kind = _kind(source, container, texts)
    if kind is None:
        source.lose(None, "a probe that is none of httpGet, tcpSocket and exec")
        return None
    rhythm = {ours: f"{seconds}s" for theirs, ours in _SECONDS.items()
              if (seconds := source.whole(theirs))}
    source.lose("initialDelaySeconds", "the first try is made at once; until readiness passes none of them counts")
    source.lose("successThreshold", "one success is enough here")
    return {**kind, **rhythm}


def startup_seconds(container: Reading) -> int | None:
    """Return how long a startup probe gives the engine, in seconds; the probe itself is reported."""
    source = container.child("startupProbe")
    if not source.names:
        return None
    numbers = {name: source.natural(name) for name in ("initialDelaySeconds", "periodSeconds", "failureThreshold")}
    seconds = (numbers["initialDelaySeconds"] or 0) + (numbers["periodSeconds"] or _DEFAULT_PERIOD) * (
        numbers["failureThreshold"] or _DEFAULT_FAILURES)
    container.lose("startupProbe", f"written as a startupTimeout of {seconds} s; what is asked is the readiness probe")
    return seconds


def _kind(source: Reading, container: Reading, texts: Texts) -> dict[str, Any] | None:
    if "httpGet" in source:
        target = source.child("httpGet")
        if target.scalar("scheme") not in (None, "HTTP"):
            target.note("scheme", "it is asked over http", "lost")
        target.lose("host", "the member itself is asked")
        return {"http": {"path": target.text("path") or "/", **_port(target, container)}}
    if "tcpSocket" in source:
        target = source.child("tcpSocket")
        target.lose("host", "the member itself is asked")
        return {"tcp": _port(target, container)}
    if "exec" in source:
        command = texts(source.child("exec"), "command")
        return {"exec": {"command": command}} if command else None
    return None


def _port(target: Reading, container: Reading) -> dict[str, int]:
    """Return the port as a number; a name is looked up in the container's ports."""
    written = target.scalar("port")
    named = {one.peek("name"): one.peek("containerPort") for one in container.items("ports")
             if isinstance(one.peek("name"), str)}
    port = named.get(written or "") if (number := number_in(written)) is None else number
    if isinstance(port, int) and 1 <= port <= 65535:
        return {"port": port}
    target.note("port", "no such port: the member's own $(FLEETCTL_PORT) is asked", "todo")
    return {}
