"""Ask the client for a new plan after nodes refused replicas. The agent contains no planner.

Meanwhile the apply awaits its created replicas and holds the lock. Each question lists Ray's current free resources, so
the answer can differ. If the client has gone there is no answer, and the plan stays as it is.
"""

from __future__ import annotations

from typing import Callable, List, Mapping, NamedTuple, Optional

import ray

from . import cluster, mailbox
from .attempt import Attempt
from .events import EventStream
from .messages import ReplanAnswer
from .wire import parse

MAX_REQUESTS = 3
ANSWER_S = 60.0
NODE_CODES = ("NODE_TAKEN", "NODE_GONE", "NODE_DRAINING")
"""Codes of refusals that another node may avoid."""


class NodeNow(NamedTuple):
    """A node as the client needs it for a new plan: ALIVE, DRAINING or DEAD, and Ray's free resources."""

    node_id: str
    state: str
    free: Mapping[str, float]


class Replanning:
    """The replicas that nodes refused, and the requests for a new plan. `job` is part of the names of the answers."""

    def __init__(self, job: str, may_ask: bool, events: EventStream, clock: Callable[[], float]) -> None:
        self.refused: List[Attempt] = []
        self._job = job
        self._requests_left = MAX_REQUESTS if may_ask else 0
        self._events = events
        self._clock = clock
        self._answer_name: Optional[str] = None
        self._asked: List[Attempt] = []
        self._deadline = 0.0

    def hold_back(self, attempt: Attempt) -> bool:
        """Hold back the outcome of an attempt if another plan may change it; returns whether it did."""
        if self._requests_left == 0 or attempt.outcome is None or attempt.outcome.code not in NODE_CODES:
            return False
        self.refused.append(attempt)
        return True

    def ask(self) -> None:
        """Send the state of the nodes, unless a question is open; `answer` returns the reply."""
        if self._answer_name is not None:
            return
        self._answer_name = f"{self._job}-replan-{MAX_REQUESTS - self._requests_left}"
        self._requests_left -= 1
        self._asked = list(self.refused)
        self._deadline = self._clock() + ANSWER_S
        outcomes = [attempt.outcome for attempt in self._asked if attempt.outcome]
        reasons = list(dict.fromkeys(outcome.message for outcome in outcomes))
        self._events.emit(
            "replanWanted", f"{'; '.join(reasons[:3])}{'; ...' if len(reasons) > 3 else ''}: planning again for "
            f"{len(outcomes)} replica{'' if len(outcomes) == 1 else 's'}",
            level="warning", refused=outcomes, nodes=_nodes(), answer=self._answer_name)

    def answer(self) -> Optional[ReplanAnswer]:
        """Return the client's answer: a request, or why there is none; None = not yet."""
        assert self._answer_name is not None
        found = mailbox.take(self._answer_name)
        if found is None and self._clock() < self._deadline:
            return None
        self._answer_name = None
        return ReplanAnswer(why="no client has answered") if found is None else parse(ReplanAnswer, found)

    def take_asked(self) -> List[Attempt]:
        """Remove and return the attempts that the latest question named; those held back since stay."""
        self.refused = [attempt for attempt in self.refused if attempt not in self._asked]
        return self._asked


def _nodes() -> List[NodeNow]:
    """Return the state and Ray's free resources of each node."""
    draining, free = cluster.draining_nodes(), cluster.free_by_node()
    nodes = []
    for record in ray.nodes():
        node_id = record["NodeID"]
        node_state = "DEAD" if not record["Alive"] else "DRAINING" if node_id in draining else "ALIVE"
        amounts = {name: free.get(node_id, {}).get(name, 0.0) for name in ("GPU", "CPU", "memory")}
        nodes.append(NodeNow(node_id, node_state, amounts))
    return nodes
