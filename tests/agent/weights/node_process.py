"""A node in a process of its own: fetches what it is asked for and serves it until its end, as a member's actor does.

Reads one JSON line (root, artifact, sources, origins, view, rank, budget), writes one for each thing that happens:
left, failed, and serving with how a plan names it, who gave it what, and how long it took.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from small import SECRET, small_pieces

from fleetctl.agent.weights.fetch import Fetch, Wanted
from fleetctl.agent.weights.index import WeightsError
from fleetctl.agent.weights.serve import Source, WeightsServer


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def main(order: dict[str, Any]) -> None:
    small_pieces()
    root = order["root"]
    wanted = Wanted(order["artifact"], order.get("view"), order.get("rank", 0), 4, order.get("origins", []),
                    order.get("sources", []), SECRET)
    try:
        got = Fetch(root, wanted, time.monotonic() + 120, lambda text: say(left=text)).run()
    except WeightsError as error:
        return say(failed=str(error))
    source = Source(root, got, SECRET, budget=order.get("budget", 1 << 30))
    with WeightsServer(source, "127.0.0.1") as server:
        server.start()
        say(serving={"replica": f"m/{Path(root).name}", "nodeId": root, "address": f"127.0.0.1:{server.port}",
                     "view": got.entry.view, "whole": got.whole is not None},
            source=got.source, name=got.name, size=got.size, reused=got.reused, folder=got.entry.folder)
        sys.stdin.readline()
    return say(sent=source.sent, made=source.made, most=source.table.most)


main(json.loads(sys.stdin.readline()))
