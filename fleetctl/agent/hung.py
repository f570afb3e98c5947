"""A replica's process that does not answer is ended on its node, with everything below it: for the explicit verbs.

Ray ends an actor by asking its process to exit, once. A process that hangs (it is stopped, or waits for a broken device
or file system) does not. Ray's table then says that the actor is dead, or for a restart that nothing has happened,
while the process, its engine and its grant of cards stay. Apply never imports this.
"""

from __future__ import annotations

import os
import signal
from typing import Callable, Generator, List

from . import cluster
from .cluster import ActorRecord
from .failure import Refused
from .on_nodes import Asked
from .orphans import command_line, signalled
from .processes import parent_and_start
from .supervisor import ALONE_S, descendants

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
