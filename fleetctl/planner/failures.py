"""Failures in words: what failed, how many times, on which nodes, and how long it cools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from fleetctl.documents.base import clock_text, moment_at
from fleetctl.documents.inventory import CAUSE, LAST_OUTPUT, Inventory
from fleetctl.documents.quantity import grouped, plural
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.planner.breaker import (
    FORGOTTEN_S,
    NO_FAILURES,
    Cooling,
    alternatives_of,
    find_cooled,
    seconds,
    usable_nodes,
)

SHOWN_NODES, SHOWN_CHARACTERS = 5, 160
EXITED = "exited with code"


@dataclass(frozen=True, slots=True)
class Failed:
    """The failures of one model within the last day. `last` is a `Moment`; `why` = the reason of the latest."""

    model: str
    count: int
    last: str
    why: str
    nodes: str


class Cools(NamedTuple):
    """A model by its key, a node by its name, or a card as `card 2 on node-a` that cools or waits for one try.

    `since` = its last failure, a `Moment`; `node` = the name of the node, or of the card's node; empty for a model;
    `variant` = the name of the variant that cools, of a model with variants.
    """

    name: str
    why: str
    since: str
    node: str = ""
    variant: str = ""


def cooling_text(cooling: Cooling, inventory: Inventory) -> str:
    """Return its end and reason: `cooling until 14:05 UTC, 3 x ENGINE_EXITED: CUDA out of memory (node-b, node-c)`."""
    where = node_names(cooling.node_ids, inventory) + _cards_in_common(cooling, inventory)
    counts = Counter(failure.code for failure in cooling.failures)
    codes = ", ".join(f"{count} x {code}" for code, count in counts.items())
    until = clock_text(moment_at(cooling.until), inventory.observed_at)
    head = f"one replica is tried first: cooled until {until}" if cooling.over else f"cooling until {until}"
    return f"{head}, {codes}: {last_words(cooling.failures[-1].message)}{f' ({where})' if where else ''}"


def missing_image_text(nodes: Collection[Cooling], inventory: Inventory) -> str:
    """Return where the image of a model is missing, the latest message, and when one of these nodes is tried again."""
    where = node_names({node_id for cooling in nodes for node_id in cooling.node_ids}, inventory)
    latest = max((cooling.failures[-1] for cooling in nodes), key=lambda failure: seconds(failure.at))
    again = min((cooling.until for cooling in nodes if not cooling.over), default=None)
    then = "" if again is None else f"; tried there again at {clock_text(moment_at(again), inventory.observed_at)}"
    return f"its image is not on {where}: {last_words(latest.message)}{then}"


def _cards_in_common(cooling: Cooling, inventory: Inventory) -> str:
    """Return the cards that all failures on a single node have in common, if that node has others."""
    cards = sorted(cooling.gpu_uuids)
    other = any(len(node.gpus) > len(cards) for node in inventory.nodes if cooling.node_ids == {node.id})
    return f", each time on {plural(len(cards), 'card')} {', '.join(cards)}" if cards and other else ""


def node_names(node_ids: Collection[str], inventory: Inventory) -> str:
    """Return the names of the first few nodes; a node that is gone is named by its id."""
    names = {node.id: node.name for node in inventory.nodes}
    nodes = sorted(names.get(node_id, node_id[:8]) for node_id in node_ids)
    more = [f"{len(nodes) - SHOWN_NODES} more"] if len(nodes) > SHOWN_NODES else []
    return ", ".join([*nodes[:SHOWN_NODES], *more])


def last_words(message: str) -> str:
    """Return a failure's message on one line: the error that ended the engine, else the last line of its output.

    If the engine exited by itself, that alone is the reason; otherwise the text before it is kept, too.
    """
    reason, separator, output = message.rpartition(LAST_OUTPUT)
    reason, cause, error = (reason or message).partition(CAUSE)
    lines = [line.strip() for line in (error if cause else output).splitlines() if any(map(str.isalnum, line))]
    text = lines[0 if cause else -1] if lines else "no reason known"
    if (cause or separator) and EXITED not in reason:
        text = f"{reason}{cause or separator}{text}"
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def what_cools(fleet: ResolvedFleet, inventory: Inventory) -> Iterator[Cools]:
    """Yield the models, then the nodes, then the cards that cool or wait for one try, with reasons.

    Of a model with variants each one that cools is yielded. A model that cools on single nodes is named with them, and
    with whether it may be created on others.
    """
    cooled, names = find_cooled(fleet, inventory), {node.id: node.name for node in inventory.nodes}
    models = {(model.key, model.variant): model for model in alternatives_of(fleet)}

    def cools(name: str, cooling: Cooling, node: str = "", variant: str = "") -> Cools:
        why = f"{f'variant {variant}: ' if variant else ''}{cooling_text(cooling, inventory)}"
        return Cools(name, why, cooling.failures[-1].at or inventory.observed_at, node, variant)

    yield from (cools(key, found, variant=variant) for (key, variant), found in cooled.models.items())
    for of, own in cooled.avoided.items():
        if of in cooled.models:
            continue
        avoided = own.keys() | cooled.nodes.keys() | cooled.no_image.get(of, {}).keys()
        others = [node for node in usable_nodes(models[of], inventory.nodes)
                  if node.id not in avoided and not node.cordon]
        for node_id, cooling in own.items():
            there = cools(of[0], cooling, variant=of[1])
            elsewhere = f"; new replicas may be created elsewhere, but not on {names[node_id]}"
            yield there._replace(why=f"{there.why}{elsewhere}") if others else there
    yield from (cools(names[node_id], cooling, names[node_id]) for node_id, cooling in cooled.nodes.items())
    yield from (cools(f"card {index} on {node.name}", cooling, node.name)
                for node in inventory.nodes for index, _, cooling in cooled.on_node(node))


def failed_lately(inventory: Inventory, fleet: str | None = None) -> list[Failed]:
    """Return the failures of the last day by model, without those that were followed by a ready replica.

    `fleet` = the name of the fleet whose replicas count; None = all.
    """
    since = seconds(inventory.observed_at) - FORGOTTEN_S
    ready: dict[str, float] = {}
    for replica in inventory.replicas:
        if replica.state == "ALIVE":
            ready[replica.model] = max(ready.get(replica.model, since), seconds(replica.ready_at))
    for success in inventory.successes:
        ready[success.model] = max(ready.get(success.model, since), seconds(success.at))
    recent = [failure for failure in inventory.failures
              if fleet in (None, failure.fleet) and failure.code not in NO_FAILURES
              and seconds(failure.at) > ready.get(failure.model, since)]
    recent.sort(key=lambda failure: (failure.model, seconds(failure.at), failure.actor_id or ""))
    return [Failed(model, len(row), row[-1].at or "", f"{row[-1].code}: {last_words(row[-1].message)}",
                   node_names({node_id for failure in row for node_id in failure.node_ids}, inventory))
            for model, row in grouped((failure.model, failure) for failure in recent).items()]
