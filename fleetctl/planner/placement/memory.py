"""What is known of a model keeps it off nodes whose cards cannot hold it, and warns of those that may not.

A replica is only kept off where the bound is certain (`sizing/card_bytes.py`), and `memoryCheck` is not `warn`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from fleetctl.documents.fleet import NodePolicy, WorkerGroup
from fleetctl.documents.inventory import Node
from fleetctl.documents.plan import Note
from fleetctl.documents.quantity import grouped
from fleetctl.documents.selector import ACCELERATOR_LABEL
from fleetctl.fleetfile.resolved import ResolvedModel
from fleetctl.planner.placement.policies import policy_of
from fleetctl.sizing.fit import CardKind, Fit, judge
from fleetctl.sizing.groups import cards_of, line_of

SHOWN = 5


def kinds_of_cards(nodes: Iterable[Node], policies: Sequence[NodePolicy]) -> dict[str, CardKind]:
    """Return the kind of the cards of each node that has any of known memory, by node id.

    Of different cards on one node the largest counts: what it cannot hold, none can.
    """
    known = {node.id: (_name(node), memory, len(node.gpus)) for node in nodes
             if node.state == "ALIVE" and (memory := _memory(node, policies))}
    alike = grouped(((name, memory), count) for name, memory, count in known.values())
    kinds = {kind: CardKind(*kind, max(counts), sum(counts)) for kind, counts in alike.items()}
    return {node_id: kinds[name, memory] for node_id, (name, memory, _) in known.items()}


def _memory(node: Node, policies: Sequence[NodePolicy]) -> int:
    return max([card.memory_total or 0 for card in node.gpus] or [0]) or (
        policy_of(node, policies).gpu_memory or 0 if node.gpus else 0)


def _name(node: Node) -> str:
    label = node.labels.get(ACCELERATOR_LABEL)
    return label or next((card.model for card in node.gpus if card.model), None) or "GPU"


def fits(model: ResolvedModel, kinds: Mapping[str, CardKind]) -> Iterator[tuple[str, WorkerGroup, Fit]]:
    """Yield what is known of each group of a described model on each node with cards, by node id."""
    if model.description is None:
        return
    fleet = tuple(sorted({*kinds.values()}))
    for group in model.workers:
        line, cards = line_of(group, model.key), cards_of(group)
        if not cards:
            continue
        known = {kind: judge(model.description, line, cards=cards, card=kind, fleet=fleet) for kind in fleet}
        yield from ((node_id, group, known[kind]) for node_id, kind in kinds.items())


def too_small(model: ResolvedModel, nodes: Iterable[Node], policies: Sequence[NodePolicy]) -> dict[str, str]:
    """Return the nodes whose cards certainly cannot hold `model`, by id, each with what such a node would need.

    All have the same text, that of the largest cards among them.
    """
    if not model.blocks_too_large:
        return {}
    kinds = kinds_of_cards(nodes, policies)
    certain = [(kinds[node_id].memory, node_id, fit) for node_id, _, fit in fits(model, kinds)
               if fit.kind == "certain"]
    if not certain:
        return {}
    _, _, nearest = max(certain, key=lambda row: row[0])
    return dict.fromkeys([node_id for _, node_id, _ in certain], in_words(nearest))


def in_words(fit: Fit) -> str:
    """Return what a node would need to hold it: the arithmetic, and the smallest shape that does."""
    return f"larger cards: {fit.text}{f' (it would fit on {fit.remedy})' if fit.remedy else ''}"


def memory_notes(models: Iterable[ResolvedModel], placed: Mapping[str, set[str]], nodes: Sequence[Node],
                 policies: Sequence[NodePolicy]) -> Iterator[Note]:
    """Yield a warning for each described model that may not fit on cards on which this plan places it.

    `placed` = the ids of those nodes by model key.
    """
    names = {node.id: node.name for node in nodes}
    kinds = kinds_of_cards(nodes, policies)
    for model in models:
        chosen = {node_id: kind for node_id, kind in kinds.items() if node_id in placed.get(model.key, ())}
        by_text = grouped((f"{model.key}: {fit.text}{f'; {fit.remedy}' if fit.remedy else ''}", node_id)
                          for node_id, _, fit in fits(model, chosen) if fit.kind != "fits")
        for text, node_ids in by_text.items():
            yield Note(code="MODEL_MAY_NOT_FIT", level="warning", message=text, node_count=len(node_ids),
                       nodes=sorted(names[node_id] for node_id in node_ids)[:SHOWN])
