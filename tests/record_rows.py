"""Rows of records in a stand-in for Ray's job table, as the agent writes them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime, timezone
from typing import Any

from fleetctl.inventory.records import ROW, ROW_TOOL, RUN


def record(subject: str, at: str = "2026-03-04T12:00:00.000Z", /, **payload: Any) -> dict[str, Any]:
    """One record in the JSON of a row."""
    return {"subject": subject, "at": at, "payload": payload}


def now() -> str:
    """The time of a record that is written now."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class RecordRows:
    """The rows, by id. The row of runs names all of them."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}

    def put(self, kind: str, rows: Iterable[Any], fleet: str = "", /, **metadata: str) -> None:
        """Write a row; `metadata` replaces fields of it."""
        name = ROW + kind + (f".{fleet}" if fleet else "")
        former = self.rows.get(name, {}).get("metadata", {})
        self.rows[name] = {
            "type": "SUBMISSION", "job_id": None, "submission_id": name, "driver_info": None, "status": "SUCCEEDED",
            "message": "", "error_type": None, "start_time": 1, "end_time": 1, "entrypoint": "nothing", "metadata": {
                "rows": former.get("rows", "[]"), "tool": ROW_TOOL, "kind": kind, "fleet": fleet, "version": "1.0",
                "records": json.dumps(list(rows)), **metadata}}
        if kind != RUN and ROW + RUN not in self.rows:
            self.put(RUN, [])
        if "rows" not in metadata:
            self.rows[ROW + RUN]["metadata"]["rows"] = json.dumps(sorted(self.rows))

    def add(self, kind: str, one: dict[str, Any], fleet: str = "") -> None:
        """Add a record to a row, in place of the one about the same subject."""
        name = ROW + kind + (f".{fleet}" if fleet else "")
        known = json.loads(self.rows[name]["metadata"]["records"]) if name in self.rows else []
        self.put(kind, [*(other for other in known if other["subject"] != one["subject"]), one], fleet)
