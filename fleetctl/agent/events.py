"""Events: one JSON object per line on standard output, which is Ray's job log. First `version`, last `runSummary`."""

from __future__ import annotations

import json
import threading
import time
from typing import Any, Protocol, Sequence

import ray

from .mark import moment
from .run_messages import Outcome
from .wire import document_of

EVENT_VERSION = "1.0"


class Requested(Protocol):
    """What every request says."""

    @property
    def tool_version(self) -> str:
        """The version of the client."""

    @property
    def job(self) -> str:
        """The id of the run's job."""


class EventStream:
    """Numbers and writes the events of one run; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seq = 0
        self._broken = ""

    def emit(self, kind: str, message: str, level: str = "info", **fields: Any) -> None:
        """Write one event; `fields` are JSON, or values that have a JSON form, without secrets."""
        with self._lock:
            event = {
                "seq": self._seq,
                "time": moment(time.time()),
                "type": kind,
                "level": level,
                "message": message,
            }
            event.update(document_of(fields))
            self._seq += 1
            # ASCII only: an engine's last output may have other line ends, or characters outside the job's locale
            line = self._broken + json.dumps(event, separators=(",", ":"))
            try:
                print(line, flush=True)
                self._broken = ""
            except OSError:  # a full disk loses events, not the run
                self._broken = "\n"

    def begin(self, request: Requested, **fields: Any) -> None:
        """Write the first event of a run: versions of events, Ray and client, and the job."""
        self.emit("version", f"fleetctl agent, events {EVENT_VERSION}, ray {ray.__version__}", version=EVENT_VERSION,
                  toolVersion=request.tool_version, job=request.job, **fields)

    def end(self, code: int, message: str, outcomes: Sequence[Outcome] = (), **fields: Any) -> int:
        """Write the summary of a run and return its exit code."""
        level = {0: "info", 3: "warning"}.get(code, "error")
        self.emit("runSummary", message, level=level, outcomes=outcomes, exitCode=code, **fields)
        return code
