"""Ask the client for a new plan where nodes differ from the plan. The agent has no planner in it.

The apply goes on meanwhile: what is created is awaited, the lock is held. Each question names Ray's free resources, so
the answer differs; a client that has gone does not answer, and then the plan stays as it is.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Optional

import ray

from . import cluster, mailbox
from .attempt import Outcome
from .events import EventStream

MOST_TIMES = 3
PATIENCE_S = 60.0
NODE_CODES = ("NODE_TAKEN", "NODE_GONE", "NODE_DRAINING")
"""The refusals that another node may avoid."""


class Replanning:
    """The replicas that a node refused, and the request for a new plan. `job` names the answers."""

    def __init__(self, job: str, may_ask: bool, events: EventStream, clock: Callable[[], float]) -> None:
        self.refused: Dict[str, Outcome] = {}
        self._job = job
        self._times_left = MOST_TIMES if may_ask else 0
        self._events = events
        self._clock = clock
        self._asked: Optional[str] = None
        self._until = 0.0

    def takes(self, key: str, outcome: Outcome) -> bool:
        """Keep an outcome back that another plan may change; returns whether it was kept."""
        if self._times_left == 0 or outcome.get("code") not in NODE_CODES:
            return False
        self.refused[key] = outcome
        return True

    def ask(self) -> None:
        """Send the state of the nodes, once; `answer` returns the reply."""
        if self._asked is not None:
            return
        self._asked = f"{self._job}-replan-{MOST_TIMES - self._times_left}"
        self._times_left -= 1
        self._until = self._clock() + PATIENCE_S
        reasons = list(dict.fromkeys(str(one["message"]) for one in self.refused.values()))
        self._events.emit(
            "replanWanted", f"{'; '.join(reasons[:3])}{'; ...' if len(reasons) > 3 else ''}: planning again for "
            f"{len(self.refused)} replica{'' if len(self.refused) == 1 else 's'}",
            level="warning", refused=list(self.refused.values()), nodes=_nodes(), answer=self._asked)

    def answer(self) -> Optional[Mapping[str, Any]]:
        """Return the client's answer, `{"request": ...}` or `{"why": ...}`; None = not yet."""
        assert self._asked is not None
        found = mailbox.take(self._asked)
        if found is None and self._clock() >= self._until:
            found = {"why": "no client has answered"}
        if found is not None:
            self._asked = None
        return found


def _nodes() -> List[Dict[str, Any]]:
    """Return Ray's free resources on each node, and which nodes are draining or dead."""
    draining, free = cluster.draining_nodes(), cluster.free_by_node()
    nodes = []
    for record in ray.nodes():
        node_id = record["NodeID"]
        node_state = "DEAD" if not record["Alive"] else "DRAINING" if node_id in draining else "ALIVE"
        amounts = {name: free.get(node_id, {}).get(name, 0.0) for name in ("GPU", "CPU", "memory")}
        nodes.append({"nodeId": node_id, "state": node_state, "free": amounts})
    return nodes
