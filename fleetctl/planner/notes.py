"""Notes: what nodes say of themselves that does not count, as it cannot be read or the fleet file says otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from fleetctl.documents.fleet import NodePolicy
from fleetctl.documents.inventory import Node
from fleetctl.documents.plan import Note
from fleetctl.planner.placement.ledger.replica import NODE_ID_LABEL
from fleetctl.planner.placement.policies import SLOTS_LABEL, effective_policy, labelled_cap

SHOWN = 5


def slot_notes(nodes: Iterable[Node], policies: Sequence[NodePolicy]) -> list[Note]:
    """Say which labels for the slot cap are not heeded, and why; nodes with the same label and reason share a note."""
    together: dict[tuple[str, str], list[str]] = {}
    for node in sorted(nodes, key=lambda node: (node.name, node.id)):
        text = node.labels.get(SLOTS_LABEL)
        if text is None or node.state == "DEAD":
            continue
        told = labelled_cap(node.labels)
        held = effective_policy(policies, {NODE_ID_LABEL: node.id, **node.labels}).slot_cap
        if told is None:
            together.setdefault((text, ""), []).append(node.name)
        elif held is not None and held.limit != told.limit:
            together.setdefault((text, f"{held.source}: {held.limit}"), []).append(node.name)
    return list(_notes(together))


def _notes(together: dict[tuple[str, str], list[str]]) -> Iterator[Note]:
    for (text, instead), names in together.items():
        shown = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
        if instead:
            yield Note(code="SLOTS_LABEL_OVERRULED", level="notice", nodes=names[:SHOWN], node_count=len(names),
                       message=f"{shown}: the label {SLOTS_LABEL} says {text}; the fleet file wins ({instead})")
        else:
            yield Note(code="SLOTS_LABEL_IGNORED", level="warning", nodes=names[:SHOWN], node_count=len(names),
                       message=f'{shown}: the label {SLOTS_LABEL} is "{text}", which is not a whole number of '
                               "at least 1; it is ignored")
