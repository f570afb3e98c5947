"""Notes: nodes that do not report all their cards; slot labels without effect, since they are invalid or overridden.
And the warnings about the fleet files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

from fleetctl.documents.fleet import NodePolicy
from fleetctl.documents.inventory import Node, unreporting
from fleetctl.documents.plan import FileWarning, Note
from fleetctl.documents.position import Position
from fleetctl.documents.quantity import some
from fleetctl.planner.placement.policies import SLOTS_LABEL, EffectivePolicy, effective_policy, labelled_cap, with_notes
from fleetctl.problem import Problem

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


def card_notes(nodes: Iterable[Node]) -> list[Note]:
    """Return a note for each number of cards that nodes do not report."""
    return [Note(code="CARDS_UNREPORTED", level="warning", message=message, node_count=len(found),
                 nodes=[node.name for node in found[:SHOWN]]) for found, message in unreporting(nodes)]


def file_warnings(found: Iterable[Problem], planned: Set[str]) -> list[FileWarning]:
    """Return the warnings about the planned models, by key, and about no model alone, in file order."""
    return [FileWarning(code=one.code, message=one.message, model=one.model or None, allowed=one.allowed,
                        suggestion=one.suggestion, source=Position(file=one.file, line=one.line, column=one.column))
            for one in found if not one.model or one.model in planned]
