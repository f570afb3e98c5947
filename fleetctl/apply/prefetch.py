"""Have nodes fetch the weights of a model before a replica needs them: a job of the agent that starts nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fleetctl.apply import jobs
from fleetctl.apply.examine import MARGIN_S, Asker, reading_answers
from fleetctl.apply.follow import Wording
from fleetctl.documents.cold import FetchedWeights
from fleetctl.documents.events import Event
from fleetctl.planner.weights import MOST_FETCHES

PREFETCH = "prefetch"
WORDING = Wording(PREFETCH, *["the same command again continues where it ended"] * 2)


def prefetch(
    asker: Asker, job: str, orders: Mapping[str, Sequence[Mapping[str, Any]]], timeout_s: float,
    heard: Callable[[FetchedWeights], None],
) -> list[FetchedWeights]:
    """Return what became of each artifact on each node, each of which is `heard` as it ends; an interrupt stops it.

    A node has `timeout_s`. Raises ApplyError and WaitTimeout.
    """
    rows: list[FetchedWeights] = []

    def take(event: Event) -> None:
        if event.type == "weightsFetched":
            rows.append(FetchedWeights.model_validate(event.model_extra))
            heard(rows[-1])

    rounds = -(-len(orders) // MOST_FETCHES)
    try:
        with reading_answers():
            asker.run(PREFETCH, job, {"nodes": orders, "timeout": timeout_s, "atOnce": MOST_FETCHES},
                      wait_s=rounds * (timeout_s + MARGIN_S) + MARGIN_S, heard=take)
    except KeyboardInterrupt:
        jobs.stop(asker.client, job)
        raise
    answered = {row.node_id for row in rows}
    return rows + [FetchedWeights(node_id=node_id, artifact=member["weights"]["artifact"], trouble="no answer")
                   for node_id, members in orders.items() if node_id not in answered for member in members]
