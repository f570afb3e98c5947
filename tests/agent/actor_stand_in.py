"""Stands in for an actor: runs one engine with the real `EngineProcess`, in a process of its own, without Ray.

Reads one JSON line (member, injected, visible, log, port, startupTimeout, aliveFor), writes one line for each thing
that happens: created, failed, ready, down. It has to be a process of its own because it becomes a subreaper. Run it
below a process that has the node's environment, as an actor runs below its raylet.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from fleetctl.agent import engine as engine_module
from fleetctl.agent.engine import EngineProcess, StartFailed

os.environ["SET_BY_RAY"] = "for its worker alone"


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def main(order: dict[str, Any]) -> None:
    engine_module.DEFAULT_READY_S = order["aliveFor"]
    try:
        engine = EngineProcess(order["member"], order["injected"], order["visible"], order["log"], order["port"])
        say(created=os.getpid())
        engine.start()
        try:
            engine.become_ready(time.monotonic() + order["startupTimeout"])
        except StartFailed:
            engine.stop()
            raise
    except StartFailed as failure:
        say(failed=failure.code, message=str(failure))
        return
    say(ready=engine.pid)
    say(down=engine.watch())


main(json.loads(sys.stdin.readline()))
