"""What is known of a model keeps it off nodes whose cards cannot hold it, and warns of those that may not.

A replica is only kept off where the bound is certain (`sizing/card_bytes.py`), and `memoryCheck` is not `warn`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain

from fleetctl.documents.fleet import WorkerGroup
from fleetctl.documents.plan import Note
from fleetctl.documents.quantity import grouped, some
from fleetctl.documents.selector import ACCELERATOR_LABEL
from fleetctl.fleetfile.resolved import ResolvedModel
from fleetctl.planner.placement.card_use import SeenCards
from fleetctl.planner.placement.ledger.ledger import LedgerNode
from fleetctl.sizing.fit import CardKind, Fit, judge
from fleetctl.sizing.groups import cards_of, line_of

SHOWN = 5
GroupOf = tuple[str, str, str]
"""A model key, the name of a variant (empty in a model without variants), and that of a worker group."""
GroupNodes = Mapping[GroupOf, Set[str]]
"""Ids of nodes."""


def kinds_of_cards(nodes: Iterable[LedgerNode]) -> dict[str, CardKind]:
    """Return the kind of the cards of each living node that has any of known memory, by node id.

    Of different cards on one node the largest counts: what it cannot hold, none can.
    """
    known = [(node.id, (_name(node), memory), len(node.gpus)) for node in nodes
             if node.state == "ALIVE" and (memory := node.largest_card)]
    alike = grouped((kind, count) for _, kind, count in known)
    kinds = {kind: CardKind(*kind, max(counts), sum(counts)) for kind, counts in alike.items()}
    return {node_id: kinds[kind] for node_id, kind, _ in known}


def _name(node: LedgerNode) -> str:
    label = node.labels.get(ACCELERATOR_LABEL)
    return label or next((card.model for card in node.gpus if card.model), None) or "GPU"


def fit_of(model: ResolvedModel, group: WorkerGroup, kind: CardKind, fleet: Iterable[CardKind]) -> Fit | None:
    """Return what is known of one group on a kind of card; None of a model that is not described, or without cards."""
    cards = cards_of(group)
    if model.description is None or not cards:
        return None
    return judge(model.description, line_of(group, model.key), cards=cards, card=kind, fleet=sorted({*fleet}))


def larger_cards(model: ResolvedModel, group_name: str, small: Iterable[LedgerNode], nodes: Iterable[LedgerNode]
                 ) -> str:
    """Return what a node would need to hold a group: the arithmetic for the largest of the `small` nodes' cards, which
    certainly cannot hold it, and the smallest shape that does on the cards of all `nodes`.
    """
    group = next(group for group in model.workers if group.name == group_name)
    nearest = max(kinds_of_cards(small).values(), key=lambda kind: kind.memory, default=None)
    fit = fit_of(model, group, nearest, kinds_of_cards(nodes).values()) if nearest else None
    if fit is None:
        return "larger cards"
    return f"larger cards: {fit.text}{f' ({fit.remedy})' if fit.remedy else ''}"


def memory_notes(models: Iterable[ResolvedModel], placed: GroupNodes, nodes: Sequence[LedgerNode],
                 seen: SeenCards | None = None) -> Iterator[Note]:
    """Yield a warning for each described group that may not fit on the cards of the nodes on which it is `placed`.

    `seen` tells where the same spec is ready, or was: such cards are large enough.
    """
    names, kinds = {node.id: node.name for node in nodes}, kinds_of_cards(nodes)
    for model in chain.from_iterable(one.alternatives for one in models):
        for group in model.workers if model.description is not None else ():
            by_kind = grouped((kinds[node_id], names[node_id])
                              for node_id in placed.get((model.key, model.variant, group.name), ()) if node_id in kinds)
            for kind, on in sorted(by_kind.items()):
                fit = fit_of(model, group, kind, kinds.values())
                if fit is None or fit.kind == "fits" or (seen is not None and any(
                        kinds.get(node_id) == kind for node_id in seen.proven_on(model).get(group.name, ()))):
                    continue
                of = f"variant {model.variant} " if model.variant else ""
                of += f"group {group.name} " if len(model.workers) > 1 else ""
                yield Note(code="MODEL_MAY_NOT_FIT", level="warning", model=model.key, node_count=len(on),
                           nodes=sorted(on)[:SHOWN], message=f"{of}on {some(sorted(on), SHOWN)}: {fit.text}"
                                                             f"{f'; {fit.remedy}' if fit.remedy else ''}")
