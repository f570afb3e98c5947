"""A node in a process of its own: fetches what it is asked for and serves it until its end, as a member's actor does.

Reads one JSON line (root, artifact, sources, origins, view, rank, budget, ip, large, views), writes one for each thing
that happens: up, left, failed, and serving with how a plan names it, who gave it what, and what it cost. With `views`
it goes no further than to make a view (`pending`), or to name its files (`ready`), and says when it is there.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from small import SECRET, small_pieces

from fleetctl.agent.weights import serve
from fleetctl.agent.weights.fetch import Fetch, Wanted
from fleetctl.agent.weights.index import WeightsError
from fleetctl.agent.weights.serve import Source, WeightsServer


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def stop_at(state: str) -> None:
    def stop(*_: Any) -> None:
        say(view=state)
        time.sleep(1000)

    serve.WAIT_S = 600.0  # who asks is not told to ask again, which would be another source
    if state == "pending":
        serve.make_view = stop
    else:
        serve.Handler._send = stop  # type: ignore[method-assign]


def main(order: dict[str, Any]) -> None:
    if not order.get("large"):
        small_pieces()
    if order.get("views"):
        stop_at(order["views"])
    root, ip, cpu = order["root"], order.get("ip", "127.0.0.1"), time.process_time()
    wanted = Wanted(order["artifact"], order.get("view"), order.get("rank", 0), 4, order.get("origins", []),
                    order.get("sources", []), SECRET)
    try:
        got = Fetch(root, wanted, time.monotonic() + 600, lambda text: say(left=text)).run()
    except WeightsError as error:
        return say(failed=str(error))
    source = Source(root, got, SECRET, budget=order.get("budget", 1 << 30), replica=f"m/{Path(root).name}")
    with WeightsServer(source, ip) as server:
        server.start()
        say(serving={"replica": f"m/{Path(root).name}", "nodeId": root, "address": f"{ip}:{server.port}",
                     "view": got.entry.view, "whole": got.whole is not None},
            source=got.source, name=got.name, size=got.size, reused=got.reused, folder=got.entry.folder,
            seconds=got.seconds, cpu=time.process_time() - cpu)
        cpu = time.process_time()
        sys.stdin.readline()
    return say(sent=source.sent, made=source.made, most=source.table.most, cpu=time.process_time() - cpu)


say(up=True)
main(json.loads(sys.stdin.readline()))
