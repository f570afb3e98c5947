"""A cluster for one apply as a whole: each replica follows a script, and so does the client that plans again."""

from __future__ import annotations

import json
import zlib
from types import SimpleNamespace
from typing import Any

import pytest
from ray_keys import Keys

from fleetctl.agent import apply as apply_module
from fleetctl.agent import cluster as cluster_module
from fleetctl.agent import lock as lock_module
from fleetctl.agent import records, run_messages
from fleetctl.agent import run as run_module
from fleetctl.agent.apply import ApplyRun
from fleetctl.agent.attempt import Attempt
from fleetctl.agent.cluster import NodeNow
from fleetctl.agent.messages import Replica
from fleetctl.agent.run import Run
from fleetctl.agent.run_messages import ApplyRequest, EventStream
from fleetctl.agent.wire import document_of, parse


class ScriptedCluster:
    """A cluster in which each replica follows a script, one word per step; the last word repeats."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.scripts: dict[str, list[str]] = {}
        self.gone_down: dict[str, str] = {}
        self.begun: list[str] = []
        self.most_creating = 0
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.lock = SimpleNamespace(released=False, released_after=None, release=self.release)
        self.keys = Keys().install(monkeypatch, run_messages)
        self.now = 0.0
        self.on_replan: Any = None
        self.asked_nodes: list[int] = []
        cluster = self

        class ScriptedAttempt(Attempt):
            """The real attempt, with a script in place of its phases."""

            def __init__(self, replica: Replica, context: Any) -> None:
                super().__init__(replica, context)
                self.script = list(cluster.scripts.get(self.key, ["granted", "ready"]))
                self._phase = self.follow

            def follow(self) -> None:
                if self._handle is None:
                    self._handle = "seen by Ray"
                    cluster.begun.append(self.key)
                cluster.count()
                word = self.script.pop(0) if len(self.script) > 1 else self.script[0]
                if word == "granted":
                    self.granted = True
                elif word != "wait":
                    kind, _, code = word.partition(":")
                    self._end(kind, code or None, f"{code} of {self.key}")

            def has_gone_down(self) -> bool:
                kind = cluster.gone_down.get(self.key)
                if kind:
                    self._end(kind, None, "it was ready")
                return kind is not None

        class ScriptedEarlierAttempt(ScriptedAttempt):
            def __init__(self, replica: Replica, context: Any) -> None:
                super().__init__(replica, context)
                self.granted = True

        self.current: list[ApplyRun] = []
        monkeypatch.setattr(apply_module, "Attempt", ScriptedAttempt)
        monkeypatch.setattr(apply_module, "EarlierAttempt", ScriptedEarlierAttempt)
        monkeypatch.setattr(run_module, "POLL_S", 0.0)
        monkeypatch.setattr(run_module, "signal", SimpleNamespace(signal=lambda *_: None, SIGTERM=15))
        monkeypatch.setattr(Run, "_work_in_thread", lambda run: run.work())
        monkeypatch.setattr(ApplyRun, "take", self.take)
        monkeypatch.setattr(apply_module, "ask_for_nodes", lambda plan, _: self.asked_nodes.append(
            sum(row.nodes for row in plan.growth)))
        monkeypatch.setattr(apply_module, "forget_dead_actors", lambda: None)
        self.keys.install(monkeypatch, apply_module, lock_module, records)
        monkeypatch.setattr(records, "change", self.write_record)
        monkeypatch.setattr(cluster_module, "draining_nodes", set)
        monkeypatch.setattr(cluster_module, "workers_at_once", lambda: {"n1": 100})
        monkeypatch.setattr(cluster_module, "taken_names", lambda: {f"ModelActor:{key.replace('/', ':')}"
                                                            for key in self.earlier})
        monkeypatch.setattr(apply_module, "_is_starting", lambda _: True)
        monkeypatch.setattr(cluster_module, "nodes_now", lambda _: [NodeNow("n1", "DRAINING", {})])
        self.earlier: list[str] = []
        self.busy: Exception | None = None

    def write_record(self, kind: str, edit: Any, fleet: str = "") -> bool:
        """Write a version of a row without its copy in the job table, which no run reads."""
        row = f"{records.ROW}{kind}"
        number, found = records._newest(row)
        text = records._packed(edit(found).values())
        return lock_module.Numbered(f"records:{row}:").write(number + 1, text.encode())

    def count(self) -> None:
        creating = sum(task.begun and isinstance(task, Attempt) and not task.granted for task in self.current[0].tasks)
        self.most_creating = max(self.most_creating, creating)

    def not_created(self) -> list[str]:
        return [task.key for task in self.current[0].tasks if isinstance(task, Attempt) and not task.granted]

    def take(self, *_: Any) -> Any:
        if self.busy:
            raise self.busy
        return self.lock

    def release(self) -> None:
        assert not self.lock.released
        self.lock.released = True
        assert self.not_created() == [], "the lock is held until the last replica has its worker"
        self.lock.released_after = [kind for kind, _ in self.events]

    def emit(self, kind: str, message: str, level: str = "info", **fields: Any) -> None:
        self.events.append((kind, {"message": message, **document_of(fields)}))
        if kind == "replanWanted" and self.on_replan is not None:
            self.keys.put(f"gcs://{fields['answer']}".encode(), zlib.compress(json.dumps(self.on_replan).encode()))

    def run(self, *keys: str, **request: Any) -> dict[str, Any]:
        """Run an apply of these replicas to its end and return its summary."""
        whole = {"job": "job-1", "holder": {}, "parallelism": 10, "wait": True, "mayReplan": False, "await": [],
                 **request_of(*keys), **request}
        stream = EventStream()
        stream.emit = self.emit  # type: ignore[method-assign]
        self.current[:] = [ApplyRun(parse(ApplyRequest, whole), stream)]
        code = self.current[0].carry_out()
        kind, summary = self.events[-1]
        assert (kind, summary["exitCode"]) == ("runSummary", code)
        return summary

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.events]


def request_of(
    *keys: str, blocked: tuple[Any, ...] = (), gpus: int = 10_000, variant: str | None = None
) -> dict[str, Any]:
    member = {"group": "main", "copy": 0, "role": "Standalone", "rank": 0, "node": "node-a", "nodeId": "n1",
              "gpus": gpus}
    actions = [{"id": key, "op": "create", "model": key.split("/")[0], "replicaId": int(key.split("/")[1]),
                "specHash": "h", "wanted": 9, "lifecycle": LIFECYCLE, "members": [member],
                **({"variant": variant} if variant else {})} for key in keys]
    specs = {"h": {"workers": [{"name": "main", "members": [{"engine": {"command": ["serve"]}}]}]}}
    plan = {"planId": "p" * 64, "fleet": {"name": "lab", "namespace": "fleet"}, "actions": actions, "specs": specs,
            "blocked": list(blocked)}
    return {"plan": plan, "record": {}, "logs": {f"{key}|main|0|0": f"{key}.log" for key in keys}}


LIFECYCLE = {"startupTimeout": 60}

def outcomes(summary: dict[str, Any]) -> list[tuple[str, Any, str]]:
    return [(row["model"], row.get("replicaId"), row["outcome"]) for row in summary["outcomes"]]


REFUSED = ["blocked:NODE_DRAINING"]
FAILED = ["granted", "failed:ENGINE_EXITED"]
