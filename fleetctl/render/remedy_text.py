"""What would help a blocked model, in one line each: nodes to add, replicas in the way. Told, never done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleetctl.documents.plan import Addition, Blocked, InTheWay
from fleetctl.documents.quantity import count_of
from fleetctl.render.place_text import gpus_text
from fleetctl.render.visible import visible

NAMES_SHOWN = 5


def remedy_lines(blocked: Blocked) -> Iterator[str]:
    """Yield the lines to show below the reasons of a blocked model."""
    if blocked.would_fit:
        added = " and ".join(_addition(one) for one in blocked.would_fit)
        yield f"would fit with {added}{_for_all(blocked)}"
    if blocked.make_room:
        gone = _some([_replica(one) for one in blocked.make_room])
        nodes = list(dict.fromkeys(visible(node) for one in blocked.make_room for node in one.nodes))
        freed = sum(one.frees for one in blocked.make_room)
        amount = f"{gpus_text(freed)} on" if freed else "on"
        yield f"would fit without {gone}: {amount} {_some(nodes)} (nothing is moved)"
    if blocked.no_remedy:
        yield visible(blocked.no_remedy)


def _addition(one: Addition) -> str:
    labels = ", ".join(f"{visible(key)}={visible(value)}" for key, value in one.labels.items())
    shape = visible(one.shape)
    shape = f"at least {shape}" if one.like is None else f"{shape}, like {visible(one.like)}"
    return f"{count_of(one.nodes, 'more node')} ({shape})" + (f" labelled {labels}" if labels else "")


def _for_all(blocked: Blocked) -> str:
    if blocked.replicas == 1:
        return ""
    everyone = "both" if blocked.replicas == 2 else f"all {blocked.replicas}"
    return f"; {everyone} with {' and '.join(str(one.nodes_for_all) for one in blocked.would_fit)}"


def _replica(one: InTheWay) -> str:
    """Name a replica, with what makes it anything but one of this fleet's running ones of no special priority."""
    notes = ["not started yet"] if one.planned else []
    if one.surplus:
        notes.append("not in the file" if one.priority is None else "surplus")
    if one.owner == "otherFleet":
        notes.append(f"of fleet {one.fleet}")
    elif one.owner == "foreign":
        notes.append("not managed")
    if one.priority:
        notes.append(f"priority {one.priority}")
    return visible(one.replica + (f" ({', '.join(notes)})" if notes else ""))


def _some(names: Sequence[str]) -> str:
    shown = names if len(names) <= NAMES_SHOWN + 1 else names[:NAMES_SHOWN]
    more = f" and {len(names) - len(shown)} more" if len(shown) < len(names) else ""
    return ", ".join(shown) + more
