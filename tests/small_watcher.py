"""A watcher of one fleet file on a simulated cluster; it never applies anything."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

from cluster_stand_in import ClusterStandIn

from fleetctl.apply.prepare import ApplyTask
from fleetctl.documents.events import RunSummary
from fleetctl.errors import LockHeld
from fleetctl.watch.source import Files
from fleetctl.watch.step import MakePlan, Notify, WatchState, step
from fleetctl.watch.watcher import Watcher
from fleetctl.workflow.invocation import Invocation, Where

FLEET = """\
apiVersion: fleetctl/v1
kind: Fleet
metadata: {name: %s}
spec:
  models:
  - key: org/m
    replicas: 3
    workers:
    - name: main
      members: [{resources: {gpus: 4}, engine: {command: [serve]}}]
"""
NOW = "2026-03-04T12:00:00Z"


def watcher_of(cluster: ClusterStandIn, file: Path, text: str = FLEET % "lab") -> Watcher:
    """Write `file` and return its watcher; an apply finds the lock held."""
    file.write_text(text)
    invocation = Invocation({"PATH": ""}, file.parent, lambda: NOW, lambda: b"", lambda *_: None, lambda: 0)

    def run(task: ApplyTask) -> RunSummary:
        raise LockHeld("another apply runs")

    return Watcher(invocation, Files([str(file)]), Where(None, cluster.url), lambda: 0.0, run, WatchState(30))


def advance(watcher: Watcher) -> list[object]:
    """Run one round; return its decisions, and store its notices."""
    with patch("fleetctl.watch.watcher.free_frozen"):  # it would walk all objects that the tests keep
        looked = watcher.look()
    watcher.state, todo = step(watcher.state, looked)
    done: list[object] = list(todo)
    if isinstance(todo[-1], MakePlan):
        watcher.state, todo = step(watcher.state, watcher.plan(todo[-1].revision))
        done += todo
    for one in done:
        if isinstance(one, Notify):
            watcher.say(NOW, f"{one.about}: {one.text}")
    return done
