"""Ask nodes something: a task on each, which claims nothing there, and a time limit for each."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, Iterator, Mapping, NamedTuple, Optional, Tuple

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from .events import EventStream


class Answer(NamedTuple):
    """What one node answered, or why it did not."""

    node_id: str
    content: Any = None
    trouble: str = ""


def ask_nodes(
    question: Callable[[Any], Any], about: Mapping[str, Any], timeout_s: float, at_once: Optional[int] = None
) -> Iterator[Answer]:
    """Yield the answers of nodes to `question` as they come; `about` = its argument by node id.

    A task of 0 CPUs and 0 GPUs takes nothing from anybody. Each node has `timeout_s`, and a task that is not done by
    then ends with us. `at_once` = ask so many nodes at a time, and end each worker with its answer.
    """
    remote = ray.remote(question) if at_once is None else ray.remote(max_calls=1)(question)
    waiting = list(about.items())[::-1]
    asked: Dict[Any, Tuple[str, float]] = {}
    while waiting or asked:
        while waiting and (at_once is None or len(asked) < at_once):
            node_id, argument = waiting.pop()
            asked[_ask(remote, node_id, argument)] = node_id, time.monotonic() + timeout_s
        first = min(deadline for _, deadline in asked.values())
        ray.wait(list(asked), num_returns=1, timeout=max(0.0, first - time.monotonic()))
        done, _ = ray.wait(list(asked), num_returns=len(asked), timeout=0)
        late = [] if done else [ref for ref, (_, deadline) in asked.items() if deadline <= time.monotonic()]
        for ref in done:
            yield _answer(ref, asked.pop(ref)[0])
        for ref in late:
            yield Answer(asked.pop(ref)[0], None, f"no worker answered there within {timeout_s:g} s")


def tell_answers(
    question: Callable[[Any], Any], request: Mapping[str, Any], events: EventStream, kind: str, word: str
) -> int:
    """Ask the nodes of a request, write an event of `kind` for each, and return how many did not answer."""
    silent = 0
    for answer in ask_nodes(question, request["nodes"], float(request["timeout"])):
        silent += bool(answer.trouble)
        events.emit(kind, answer.trouble or word, level="warning" if answer.trouble else "info",
                    nodeId=answer.node_id, trouble=answer.trouble, **(answer.content or {}))
    return silent


def _ask(remote: Any, node_id: str, argument: Any) -> Any:
    return remote.options(num_cpus=0, num_gpus=0, max_retries=0, scheduling_strategy=NodeAffinitySchedulingStrategy(
        node_id, soft=False)).remote(argument)


def _answer(ref: Any, node_id: str) -> Answer:
    try:
        return Answer(node_id, ray.get(ref))
    except Exception as error:  # of whatever kind: it is about this node alone
        lines = str(error).strip().splitlines()
        return Answer(node_id, None, lines[-1][:300] if lines else type(error).__name__)
