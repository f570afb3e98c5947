"""Before and after a replica is ended: the time that its requests have, and the end of a process that hangs.

Requests have as long as was asked for, or less where engines tell. Each serving engine is asked for its metrics. Only
if all of them say, twice in a row, that no request is left, the wait is over early. What an engine says is a claim,
like its address: only a living node is asked, for a bounded answer.

Ray ends an actor by asking its process to exit, once. A process that hangs (it is stopped, or waits for a broken device
or file system) does not. Ray's table then says that the actor is dead, or for a restart that nothing has happened,
while the process, its engine and its grant of cards stay: it is ended on its node, with everything below it.

Only for the explicit verbs: apply never imports this.
"""

from __future__ import annotations

import http.client
import os
import re
import signal
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Callable, Dict, Generator, List, Optional, Sequence, Tuple

from . import cluster
from .cluster import ActorRecord
from .leftovers import command_line, signalled
from .on_nodes import Asked
from .probes import connect_until
from .processes import parent_and_start
from .report import Refused, read_mark
from .run import Run
from .run_messages import Target
from .supervisor import ALONE_S, descendants

ROUTED_S = 15.0
"""How long routers may still send requests: `endpoints --follow` reads every 5 s, then the router must reload."""
LOOK_S, QUIET_LOOKS = 2.0, 2
"""A request may be on its way between two processes of an engine, which then counts it nowhere."""
ANSWER_S, ANSWER_BYTES, AT_ONCE = 2.0, 4 << 20, 16
COUNTS = (
    ("vllm:num_requests_running", "vllm:num_requests_waiting"),
    ("sglang:num_running_reqs", "sglang:num_queue_reqs"),
    ("llamacpp:requests_processing", "llamacpp:requests_deferred"),
    ("tgi_batch_current_size", "tgi_queue_size"),
    ("lmdeploy:num_requests_running", "lmdeploy:num_requests_waiting", "lmdeploy:num_api_requests_waiting"),
)
"""The gauges of requests of vLLM, SGLang, llama.cpp, TGI and LMDeploy. SGLang has them only with --enable-metrics, and
llama.cpp with --metrics."""
_SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{[^\n]*\})?[ \t]+(\S+)", re.MULTILINE)
Address = Tuple[str, int]


class Drain:
    """The wait of a run for requests to some of its replicas; `seconds` at most. Ask `is_over` again and again."""

    def __init__(self, targets: Sequence[Target], seconds: float, run: Run) -> None:
        self._targets, self._run, begun = targets, run, run.clock()
        self._until, self._look_at = begun + seconds, begun + ROUTED_S
        if seconds:
            self._report(f"waiting up to {seconds:g} s for requests to end; `fleetctl endpoints` no longer lists it")
        self._pool = ThreadPoolExecutor(AT_ONCE)
        self._asked: List[Future[Optional[float]]] = []
        self._quiet = 0

    def is_over(self) -> bool:
        """Return whether the time is over, or no request is left. Does not wait for an engine."""
        now = self._run.clock()
        if now >= self._until:
            return True
        if self._asked:
            if all(look.done() for look in self._asked):
                self._quiet = 0 if any(look.result() != 0 for look in self._asked) else self._quiet + 1
                self._asked, self._look_at = [], now + LOOK_S
        elif now >= self._look_at:
            engines = [serving_engines(target.actor_id) for target in self._targets]
            if None in engines:
                self._look_at = self._until  # nothing will tell
            self._asked = [self._pool.submit(requests_at, *address)
                           for serving in engines if None not in engines for address in serving or ()]
            self._quiet = self._quiet if self._asked or None in engines else QUIET_LOOKS
        if self._quiet >= QUIET_LOOKS:
            self._until = now
            self._report("no request is left")
            return True
        return False

    def _report(self, text: str) -> None:
        self._run.events.emit("draining", text)


def serving_engines(actor_id: str) -> Optional[List[Address]]:
    """Return where the engines of a replica serve, none if it is not up; None if that is not known."""
    try:
        record = cluster.actor_record(actor_id)
        if not record.is_up:
            return []
        mark = read_mark(record.report)
        if mark is None or not mark.members:
            return None
        serving = [place for place in mark.members if place.rank == 0 and mark.level != "WARM"]
        known = all(place.port and cluster.is_at(place.node_id, place.ip) for place in serving)
    except Exception:  # Ray's head does not answer: the whole time is waited for
        return None
    return [(place.ip, place.port or 0) for place in serving] if known else None


def requests_at(host: str, port: int) -> Optional[float]:
    """Return how many requests an engine has, as its metrics say; None if it does not tell."""
    try:
        with closing(connect_until(time.monotonic() + ANSWER_S, host, port)) as connection:
            connection.request("GET", "/metrics", headers={"User-Agent": "fleetctl-drain", "Connection": "close"})
            answer = connection.getresponse()
            text = answer.read(ANSWER_BYTES).decode(errors="replace")
        return count_requests(text) if answer.status == 200 else None
    except (OSError, ValueError, http.client.HTTPException):
        return None


def count_requests(metrics: str) -> Optional[float]:
    """Return the sum of an engine's gauges of requests; None if one is missing. Raises ValueError for no number."""
    found: Dict[str, float] = {}
    for name, value in _SAMPLE.findall(metrics):
        found[name] = found.get(name, 0.0) + float(value)
    for names in COUNTS:
        if all(name in found for name in names):
            return sum(found[name] for name in names)
    return None


ENDS_S = 10.0
"""How long Ray may take to end a process, and to hear of its end."""
NODE_S = 60.0
MARGIN_S = 1.0
KILLED = "its process did not answer and was killed"


def await_end(record: ActorRecord, node: str, clock: Callable[[], float]) -> Generator[None, None, bool]:
    """Return once the process of an actor that Ray was told to end is gone; True = it had to be killed on its `node`.

    Yields where it waits. Raises Refused if something of it may still run.
    """
    if (yield from _is_over(record, clock)):
        return False
    asked = Asked(end_process, record.node_id, record.pid, NODE_S)
    while (answer := asked.answer()) is None:
        yield
    if answer.trouble:
        raise Refused("STILL_RUNNING", (
            f"its process {record.pid} on {node} does not answer, nor does the node: {answer.trouble}; "
            "`fleetctl doctor --nodes` shows whether its engine still runs"))
    if answer.content:
        raise Refused("STILL_RUNNING", f"its process {record.pid} on {node} does not answer and cannot be killed yet: "
                                       f"{', '.join(answer.content)} still run")
    yield from _is_over(record, clock)
    return True


def _is_over(record: ActorRecord, clock: Callable[[], float]) -> Generator[None, None, bool]:
    """Return whether the process ends in time; with its node it is gone, too."""
    begun = clock()
    while cluster.worker_is_alive(record.worker_id) and record.node_id in cluster.alive_nodes():
        if clock() >= begun + ENDS_S:
            return False
        yield
    return True


def end_process(pid: int) -> List[str]:
    """End a worker process on this node, then everything below it; return what still runs, such as `7 (vllm serve)`.

    A process that is not a child of this node's raylet, our own parent, is another one with the same pid.
    """
    parent, began = parent_and_start(pid)
    if parent != os.getppid():
        return []
    below = [(each, parent_and_start(each)[1]) for each in descendants(pid)]
    left = signalled([(pid, began)], signal.SIGKILL, 0)
    left = signalled([*left, *below], 0, ALONE_S + MARGIN_S)  # its guards end the engine
    left = signalled(left, signal.SIGKILL, ALONE_S)
    return [f"{each} ({command_line(each)})" for each, _ in left]
