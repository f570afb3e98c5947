"""Run a task on each of several nodes, without a claim, and with a time limit for each."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Callable, Generic, Iterator, Mapping, Optional, TypeVar, Union

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from .run_messages import CachesRequest, EventStream, ExamineRequest
from .wire import document_of

Argument = TypeVar("Argument")
Found = TypeVar("Found")


@dataclass(frozen=True)
class NodeAnswer(Generic[Found]):
    """The answer of one node, or why there is none."""

    node_id: str
    content: Optional[Found] = None
    trouble: str = ""


def ask_nodes(
    task: Callable[[Argument], Found], arguments: Mapping[str, Argument], timeout_s: float
) -> Iterator[NodeAnswer[Found]]:
    """Run `task` on nodes and yield their answers as they arrive; `arguments` = its argument by node id.

    The task claims 0 CPUs and 0 GPUs. Each node has `timeout_s`; a task that takes longer ends with this process.
    """
    remote, deadline = ray.remote(task), time.monotonic() + timeout_s
    running = {_ask(remote, node_id, argument): node_id for node_id, argument in arguments.items()}
    while running:
        ray.wait(list(running), num_returns=1, timeout=max(0.0, deadline - time.monotonic()))
        done, _ = ray.wait(list(running), num_returns=len(running), timeout=0)
        for ref in done:
            yield _answer(ref, running.pop(ref))
        if not done and time.monotonic() >= deadline:
            yield from (_late(node_id, timeout_s) for node_id in running.values())
            return


class Asked(Generic[Found]):
    """A task on one node, for a run that does not wait for it. Its worker ends with it."""

    def __init__(self, task: Callable[[Argument], Found], node_id: str, argument: Argument, timeout_s: float) -> None:
        self._node_id, self._timeout_s = node_id, timeout_s
        self._ref = _ask(_run_once(task), node_id, argument)
        self._deadline = time.monotonic() + timeout_s

    def answer(self) -> Optional[NodeAnswer[Found]]:
        """Return the node's answer, or that it has given none in time; None = it still may."""
        if ray.wait([self._ref], timeout=0)[0]:
            return _answer(self._ref, self._node_id)
        return _late(self._node_id, self._timeout_s) if time.monotonic() >= self._deadline else None


def report_answers(
    task: Callable[[Any], object], request: Union[ExamineRequest, CachesRequest], events: EventStream, kind: str,
    success: str,
) -> int:
    """Run a task on the nodes of a request, write an event of `kind` for each, and return how many did not answer.

    The event has the fields of the task's answer, a NamedTuple.
    """
    silent = 0
    for answer in ask_nodes(task, request.nodes, request.timeout):
        silent += bool(answer.trouble)
        events.emit(kind, answer.trouble or success, level="warning" if answer.trouble else "info",
                    nodeId=answer.node_id, trouble=answer.trouble, **document_of(answer.content or {}))
    return silent


@lru_cache(maxsize=None)
def _run_once(task: Callable[..., Any]) -> Any:
    """Return Ray's task whose worker ends with it, one for all nodes: Ray packs and sends each new one again."""
    return ray.remote(max_calls=1)(task)


def _ask(remote: Any, node_id: str, argument: Any) -> Any:
    return remote.options(num_cpus=0, num_gpus=0, max_retries=0, scheduling_strategy=NodeAffinitySchedulingStrategy(
        node_id, soft=False)).remote(argument)


def _answer(ref: Any, node_id: str) -> NodeAnswer[Any]:
    try:
        return NodeAnswer(node_id, ray.get(ref))
    except Exception as error:  # any error concerns this node alone
        lines = str(error).strip().splitlines()
        return NodeAnswer(node_id, None, lines[-1][:300] if lines else type(error).__name__)


def _late(node_id: str, timeout_s: float) -> NodeAnswer[Any]:
    return NodeAnswer(node_id, None, f"no worker answered there within {timeout_s:g} s")
