"""What a Ray dashboard returns for unauthenticated GETs: every route in Ray's sources, with the cluster's own ids."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import ray.dashboard

ROUTE = re.compile(r'routes\.get\(\s*"(/[^"]*)"')
SLOW = re.compile(r"profile|traceback|delay|tail|memory_profile")
"""These routes stop other processes to examine them, wait, or never end."""


def answers(address: str, session: Path) -> Iterator[tuple[str, bytes]]:
    """Yield each path and its body; some bodies only say that the route is not available in this cluster.

    `session` = the folder of Ray's files, to leave out empty logs.
    """
    with httpx.Client(base_url=address, headers={"User-Agent": "tests"}, timeout=30) as client:
        def rows(path: str) -> Any:
            return client.get(path).raise_for_status().json()

        there = {
            "node_id": [node["raylet"]["nodeId"] for node in rows("/nodes?view=summary")["data"]["summary"]
                        if node["raylet"]["state"] == "ALIVE"],
            "actor_id": list(rows("/logical/actors?nocache=1")["data"]["actors"]),
            "job_or_submission_id": [job["submission_id"] for job in rows("/api/jobs/") if job["submission_id"]]}
        for path in sorted({route for file in Path(ray.dashboard.__file__).parent.rglob("*.py")
                            for route in ROUTE.findall(file.read_text()) if not SLOW.search(route)}):
            [name] = re.findall(r"\{(\w+)\}", path)[:1] or [""]
            for value in there.get(name, []) if name else [""]:
                filled = path.replace(f"{{{name}}}", value)
                yield filled, client.get(filled).content
        # the nodes of a machine share one folder, and each lists all of it
        read = {path.name for path in session.glob("ray/session_latest/logs/*")
                if path.is_file() and not path.stat().st_size}
        for node in there["node_id"]:
            files = rows(f"/api/v0/logs?node_id={node}")["data"]["result"]
            for name in {name for kind in files.values() for name in kind} - read:
                read.add(name)
                path = f"/api/v0/logs/file?node_id={node}&filename={name}&lines=-1"
                yield path, client.get(path).content
