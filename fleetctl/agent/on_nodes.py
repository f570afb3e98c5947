"""Ask nodes something: a task on each, which claims nothing there, and one time limit for all of them."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, Mapping, NamedTuple

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy


class Answer(NamedTuple):
    """What one node answered, or why it did not."""

    node_id: str
    content: Any = None
    trouble: str = ""


def ask_nodes(question: Callable[[Any], Any], about: Mapping[str, Any], timeout_s: float) -> Iterator[Answer]:
    """Yield the answer of each node to `question`; `about` = its argument by node id.

    A task of 0 CPUs and 0 GPUs takes nothing from anybody. One that is still not done at the time limit ends with us.
    """
    remote = ray.remote(question)
    asked: Dict[Any, str] = {}
    for node_id, argument in about.items():
        task = remote.options(num_cpus=0, num_gpus=0, max_retries=0,
                              scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False))
        asked[task.remote(argument)] = node_id
    done, late = ray.wait(list(asked), num_returns=len(asked), timeout=timeout_s) if asked else ([], [])
    for ref in done:
        yield _answer(ref, asked[ref])
    for ref in late:
        yield Answer(asked[ref], None, f"no worker answered there within {timeout_s:g} s")


def _answer(ref: Any, node_id: str) -> Answer:
    try:
        return Answer(node_id, ray.get(ref))
    except Exception as error:  # of whatever kind: it is about this node alone
        lines = str(error).strip().splitlines()
        return Answer(node_id, None, lines[-1][:300] if lines else type(error).__name__)
