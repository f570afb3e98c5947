"""Stands in for an actor: runs one engine with the real `EngineProcess`, in a process of its own, without Ray.

Reads one JSON line (member, injected, log, startupTimeout, aliveFor) and writes one line per event: created (the
port reserved for the engine, its FLEETCTL_PORT), failed, ready, serves (a port), down. With `probed` false, the
engine is a rank whose readiness is not probed; with `asWorker` this process runs as Ray runs its workers. With
`goesOn`, the period and timeout of readiness after the start, each change of it is an `answers` event: null, or why it
does not. A separate process, because it becomes a subreaper. Run it below a process that has the node's environment, as
an actor runs below its raylet.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import without_ray  # noqa: F401

from fleetctl.agent import engine as engine_module
from fleetctl.agent import guarded, node, ports, processes, readiness, supervisor
from fleetctl.agent.engine import EngineLog, EngineProcess
from fleetctl.agent.messages import Member
from fleetctl.agent.report import StartFailed
from fleetctl.agent.wire import parse

os.environ["SET_BY_RAY"] = "for its worker alone"


def report(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def only_to_worse(which: int, who: int, value: int) -> None:
    if value < os.getpriority(which, who):
        raise PermissionError


def main(order: dict[str, Any]) -> None:
    engine_module.DEFAULT_READY_S = order["aliveFor"]
    engine_module.PORT_FREE_S = order.get("patience", 0.2)
    processes.COUNTERS = order.get("counters", processes.COUNTERS)
    if order.get("asWorker"):
        os.nice(5)
        Path("/proc/self/oom_score_adj").write_text("1000")
        if order.get("unprivileged"):  # as in a container without CAP_SYS_NICE and CAP_SYS_RESOURCE
            node.os.setpriority = only_to_worse
        else:
            node.share_memory_standing()
    if "question" in order:  # the guard asks it soon after this process hangs
        guarded.question = lambda: order["question"]
        supervisor.BEAT_S = 0.1
        order["member"]["supervisor"] = order["member"]["supervisor"].replace(
            "BEAT_S = 5.0", "BEAT_S = 0.1").replace("SILENT_S = 20.0", "SILENT_S = 1.0").replace(
            "ASK_EVERY_S = 30.0", "ASK_EVERY_S = 0.2")
    reserved = [ports.reserve_port(), ports.reserve_port()]
    port, leader_port = (holder.getsockname()[1] for holder in reserved)
    injected = {**order["injected"], "FLEETCTL_PORT": str(port), "FLEETCTL_LEADER_PORT": str(leader_port)}
    try:
        engine = EngineProcess(parse(Member, order["member"]), injected, EngineLog(order["log"]), reserved)
        report(created=port)
        engine.start()
        if not order.get("probed", True):
            report(down=engine.watch(threading.Event()))
            return
        try:
            engine.become_ready(time.monotonic() + order["startupTimeout"], order["startupTimeout"])
        except StartFailed:
            engine.stop()
            raise
    except StartFailed as failure:
        report(failed=failure.code, message=str(failure))
        return
    report(ready=engine._run.pid)
    report(serves=engine.served_port())
    if "goesOn" in order:
        readiness.PERIOD_S, readiness.TIMEOUT_S = order["goesOn"]
        told: list[Any] = [None]

        def tell(state: Any) -> None:
            if state != told[-1]:
                told.append(state)
                report(answers=state and state.reason)

        engine.keep_probing(tell)
    report(down=engine.watch())


main(json.loads(sys.stdin.readline()))
