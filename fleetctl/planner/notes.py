"""Notes: nodes that do not report all their cards; slot labels without effect, since they are invalid or overridden."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fleetctl.documents.fleet import NodePolicy
from fleetctl.documents.inventory import Node
from fleetctl.documents.plan import Note
from fleetctl.documents.quantity import some
from fleetctl.documents.selector import ACCELERATOR_LABEL
from fleetctl.planner.placement.policies import SLOTS_LABEL, EffectivePolicy, effective_policy, labelled_cap, with_notes

SHOWN = 5


def policy_of(node: Node, policies: Sequence[NodePolicy]) -> EffectivePolicy:
    """Return the effective policy of a node of the inventory."""
    return with_notes(effective_policy(policies, node.all_labels), node)


def slot_notes(nodes: Iterable[Node], policies: Sequence[NodePolicy]) -> list[Note]:
    """Return a note for each slot label without effect, with the reason; nodes with the same of both share a note."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for node in sorted(nodes, key=lambda node: (node.name, node.id)):
        text = node.labels.get(SLOTS_LABEL)
        if text is None or node.state == "DEAD":
            continue
        from_label = labelled_cap(node.labels)
        held = policy_of(node, policies).slot_cap
        if from_label is None:
            by_reason.setdefault((text, ""), []).append(node.name)
        elif held is not None and held.limit != from_label.limit:
            winner = "a note" if node.slots is not None else "the fleet file"
            by_reason.setdefault((text, f"{winner} overrides it ({held.source}: {held.limit})"), []).append(node.name)
    return [Note(code="SLOTS_LABEL_OVERRULED", level="notice", nodes=names[:SHOWN], node_count=len(names),
                 message=f"{some(names, SHOWN)}: the label {SLOTS_LABEL} says {text}; {overridden}") if overridden
            else Note(code="SLOTS_LABEL_IGNORED", level="warning", nodes=names[:SHOWN], node_count=len(names),
                      message=f'{some(names, SHOWN)}: the label {SLOTS_LABEL} is "{text}", which is not a whole number '
                              "of at least 1; it is ignored")
            for (text, overridden), names in by_reason.items()]


def unreporting(nodes: Iterable[Node]) -> list[Node]:
    """Return the nodes, by name, that do not report all the cards that they offer to Ray.

    GPUs count as simulated if no node reports any card, and Ray has seen no kind of card on the node.
    """
    alive = [node for node in nodes if node.state == "ALIVE"]
    real = any(node.reported_cards for node in alive)
    return sorted((node for node in alive if node.unreported_cards and (real or ACCELERATOR_LABEL in node.labels)),
                  key=lambda node: (node.name, node.id))


def card_notes(nodes: Iterable[Node]) -> list[Note]:
    """Return a note for each number of cards that nodes do not report; nodes with the same number share a note."""
    by_count: dict[tuple[int, int], list[str]] = {}
    for node in unreporting(nodes):
        by_count.setdefault((node.unreported_cards, int(node.resources.total.gpu)), []).append(node.name)
    return [Note(code="CARDS_UNREPORTED", level="warning", nodes=names[:SHOWN], node_count=len(names),
                 message=f"{some(names, SHOWN)} {'reports' if len(names) == 1 else 'each report'} {total - missing} of "
                         f"{total} cards: one may be lost, and what else uses the others is unknown; other nodes are "
                         "used first, and each member checks its cards before its engine starts")
            for (missing, total), names in sorted(by_count.items())]
