"""Ask the client for a new plan after nodes refused replicas. The agent contains no planner.

Meanwhile the apply awaits its created replicas and holds the lock. Each question lists Ray's current free resources, so
the answer can differ. If the client has gone there is no answer, and the plan stays as it is.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Optional

import ray

from . import cluster, mailbox
from .attempt import Outcome
from .events import EventStream

MAX_REQUESTS = 3
ANSWER_S = 60.0
NODE_CODES = ("NODE_TAKEN", "NODE_GONE", "NODE_DRAINING")
"""Codes of refusals that another node may avoid."""


class Replanning:
    """The replicas that nodes refused, and the requests for a new plan. `job` is part of the names of the answers."""

    def __init__(self, job: str, may_ask: bool, events: EventStream, clock: Callable[[], float]) -> None:
        self.refused: Dict[str, Outcome] = {}
        self._job = job
        self._requests_left = MAX_REQUESTS if may_ask else 0
        self._events = events
        self._clock = clock
        self._answer_name: Optional[str] = None
        self._asked: List[str] = []
        self._deadline = 0.0

    def hold_back(self, key: str, outcome: Outcome) -> bool:
        """Hold back an outcome if another plan may change it; returns whether it did."""
        if self._requests_left == 0 or outcome.get("code") not in NODE_CODES:
            return False
        self.refused[key] = outcome
        return True

    def ask(self) -> None:
        """Send the state of the nodes, unless a question is open; `answer` returns the reply."""
        if self._answer_name is not None:
            return
        self._answer_name = f"{self._job}-replan-{MAX_REQUESTS - self._requests_left}"
        self._requests_left -= 1
        self._asked = list(self.refused)
        self._deadline = self._clock() + ANSWER_S
        reasons = list(dict.fromkeys(str(outcome["message"]) for outcome in self.refused.values()))
        self._events.emit(
            "replanWanted", f"{'; '.join(reasons[:3])}{'; ...' if len(reasons) > 3 else ''}: planning again for "
            f"{len(self.refused)} replica{'' if len(self.refused) == 1 else 's'}",
            level="warning", refused=list(self.refused.values()), nodes=_nodes(), answer=self._answer_name)

    def answer(self) -> Optional[Mapping[str, Any]]:
        """Return the client's answer, `{"request": ...}` or `{"why": ...}`; None = not yet."""
        assert self._answer_name is not None
        found = mailbox.take(self._answer_name)
        if found is None and self._clock() >= self._deadline:
            found = {"why": "no client has answered"}
        if found is not None:
            self._answer_name = None
        return found

    def take_asked(self) -> Dict[str, Outcome]:
        """Remove and return the outcomes that the latest question named; those held back since stay."""
        return {key: self.refused.pop(key) for key in self._asked}


def _nodes() -> List[Dict[str, Any]]:
    """Return the state and Ray's free resources of each node."""
    draining, free = cluster.draining_nodes(), cluster.free_by_node()
    nodes = []
    for record in ray.nodes():
        node_id = record["NodeID"]
        node_state = "DEAD" if not record["Alive"] else "DRAINING" if node_id in draining else "ALIVE"
        amounts = {name: free.get(node_id, {}).get(name, 0.0) for name in ("GPU", "CPU", "memory")}
        nodes.append({"nodeId": node_id, "state": node_state, "free": amounts})
    return nodes
