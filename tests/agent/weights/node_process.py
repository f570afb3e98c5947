"""A node in a process of its own: fetches weights and serves them until it is ended, as a member's actor does.

Reads one JSON line (root, artifact, sources, origins, view, rank, budget, ip, large, views) and writes one line per
event: up, left (a source that was dropped), failed, and serving (the source as a plan names it, where the weights
came from, and the costs). With `views` the process stops while it makes a view (`pending`) or before it sends an
index (`ready`), and reports that state.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import without_ray  # noqa: F401
from small_pieces import SECRET, use_small_pieces

from fleetctl.agent.messages import WeightSource
from fleetctl.agent.weights import connections, serve
from fleetctl.agent.weights.fetch import Fetch, Wanted
from fleetctl.agent.weights.index import WeightsError
from fleetctl.agent.weights.serve import Source, WeightsServer
from fleetctl.agent.weights.views import read_view
from fleetctl.agent.wire import parse


def report(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def stop_at(state: str) -> None:
    def stop(*_: Any) -> None:
        report(view=state)
        time.sleep(1000)

    serve.WAIT_S = 600.0  # a client must not be told to retry, because it would choose another source
    if state == "pending":
        serve.make_view = stop
    else:
        serve.Handler._send = stop  # type: ignore[method-assign]


def main(order: dict[str, Any]) -> None:
    if not order.get("large"):
        use_small_pieces()
    if order.get("views"):
        stop_at(order["views"])
    root, ip, cpu = order["root"], order.get("ip", "127.0.0.1"), time.process_time()
    sources = [parse(WeightSource, source) for source in order.get("sources", [])]
    wanted = Wanted(order["artifact"], read_view(order.get("view")), order.get("rank", 0), 4, order.get("origins", []),
                    sources, SECRET)
    try:
        got = Fetch(root, wanted, time.monotonic() + 600, lambda text: report(left=text)).run()
    except WeightsError as error:
        return report(failed=str(error))
    source = Source(root, got, SECRET, budget=order.get("budget", 1 << 30), replica=f"m/{Path(root).name}")
    with WeightsServer(source, ip) as server:
        server.start()
        report(serving={"replica": f"m/{Path(root).name}", "nodeId": root, "address": f"{ip}:{server.port}",
                        "view": got.entry.view, "whole": got.whole is not None},
               source=got.source, name=got.name, size=got.size, reused=got.reused, folder=got.entry.folder,
               seconds=got.seconds, cpu=time.process_time() - cpu)
        cpu = time.process_time()
        sys.stdin.readline()
    return report(sent=source.sent, made=source.made, most=source.table.most, cpu=time.process_time() - cpu)


connections.MOST_FROM_ONE = connections.MOST_CONNECTIONS  # all nodes of a test have the same address
report(up=True)
main(json.loads(sys.stdin.readline()))
