"""Imports probes of containers: readiness and liveness map one to one, a startup probe becomes startupTimeout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fleetctl.documents.quantity import number_in
from fleetctl.importers.reading import Reading

Texts = Callable[[Reading, str], list[str]]
"""Reads the list of texts under a key, with variables renamed to ours."""

_SECONDS = {"periodSeconds": "period", "timeoutSeconds": "timeout"}
_DEFAULT_PERIOD, _DEFAULT_TIMEOUT, _DEFAULT_FAILURES = 10, 1, 3


def readiness(container: Reading, texts: Texts) -> dict[str, Any] | None:
    """Return the readiness probe in our format; None if it is missing or has no counterpart."""
    found = _probe(container, "readinessProbe", texts)
    container.child("readinessProbe").lose("failureThreshold", "readiness is probed until startupTimeout is over")
    return found


def liveness(container: Reading, texts: Texts) -> dict[str, Any] | None:
    """Return the liveness probe with Kubernetes' default times: ours are shorter and would restart more often."""
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
        source.lose(None, "not a probe of httpGet, tcpSocket or exec")
        return None
    rhythm = {ours: f"{seconds}s" for theirs, ours in _SECONDS.items()
              if (seconds := source.whole(theirs))}
    source.lose("initialDelaySeconds", "probes start at once; failures do not count until readiness passes")
    source.lose("successThreshold", "one success is enough")
    return {**kind, **rhythm}


def startup_seconds(container: Reading) -> int | None:
    """Return the startup time that a startup probe allows, in seconds; the probe itself is reported."""
    source = container.child("startupProbe")
    if not source.names:
        return None
    numbers = {name: source.natural(name) for name in ("initialDelaySeconds", "periodSeconds", "failureThreshold")}
    seconds = (numbers["initialDelaySeconds"] or 0) + (numbers["periodSeconds"] or _DEFAULT_PERIOD) * (
        numbers["failureThreshold"] or _DEFAULT_FAILURES)
    container.lose("startupProbe", f"written as a startupTimeout of {seconds} s; only the readiness probe is sent")
    return seconds


def _kind(source: Reading, container: Reading, texts: Texts) -> dict[str, Any] | None:
    if "httpGet" in source:
        target = source.child("httpGet")
        if target.scalar("scheme") not in (None, "HTTP"):
            target.note("scheme", "the probe uses http", "lost")
        target.lose("host", "the probe goes to the member itself")
        return {"http": {"path": target.text("path") or "/", **_port(target, container)}}
    if "tcpSocket" in source:
        target = source.child("tcpSocket")
        target.lose("host", "the probe goes to the member itself")
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
    target.note("port", "no such port: the probe uses the member's $(FLEETCTL_PORT)", "todo")
    return {}
