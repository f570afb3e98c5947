"""Why a model is blocked, node by node, and what would help, a line each. Texts are as they came, not yet safe."""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.documents.plan import Addition, Blocked, InTheWay, Reason
from fleetctl.documents.quantity import amount_of, count_of, some


def blocked_details(blocked: Blocked, *, for_all: bool = True) -> tuple[str, ...]:
    """Return the reasons of a blocked model node by node, and what would help, a line each.

    Without `for_all` what would help is that for one replica, not for all that are blocked.
    """
    reasons = (_reason(reason, blocked.message) for reason in blocked.reasons if reason.node_count)
    return (*reasons, *remedy_lines(blocked, for_all=for_all))


def _reason(reason: Reason, message: str) -> str:
    """Return the line of one kind of reason; arithmetic that is in the message already is not repeated."""
    said = bool(reason.need) and reason.need in message and reason.best in message
    sums = [f"{word} {value}" for word, value in
            (("need", reason.need), ("best", reason.best), ("short", reason.short))
            if value and value != "none" and not said]
    rest = reason.node_count - len(reason.examples)
    named = ", ".join(reason.examples) + (f" and {rest} more" if reason.examples and rest > 0 else "")
    return (f"{count_of(reason.node_count, 'node')}: {', '.join([reason.code, *sums])}"
            + (f" ({named})" if named else ""))


def remedy_lines(blocked: Blocked, *, for_all: bool = True) -> Iterator[str]:
    """Yield the lines to show below the reasons of a blocked model."""
    if blocked.would_fit:
        added = " and ".join(_addition(one, one.nodes) for one in blocked.would_fit if one.nodes)
        yield f"would fit with {added}{_for_all(blocked) if for_all else ''}"
    if blocked.make_room:
        gone = some([_replica(one) for one in blocked.make_room])
        nodes = list(dict.fromkeys(node for one in blocked.make_room for node in one.nodes))
        freed = sum(one.frees for one in blocked.make_room)
        amount = f"{amount_of(freed, 'GPU')} on" if freed else "on"
        yield f"would fit without {gone}: {amount} {some(nodes)} (fleetctl removes nothing)"
    if blocked.no_remedy:
        yield blocked.no_remedy


def _addition(one: Addition, nodes: int) -> str:
    labels = ", ".join(f"{key}={value}" for key, value in one.labels.items())
    shape = f"at least {one.shape}" if one.like is None else f"{one.shape}, like {one.like}"
    return f"{count_of(nodes, 'more node')} ({shape})" + (f" labelled {labels}" if labels else "")


def _for_all(blocked: Blocked) -> str:
    if blocked.replicas == 1:
        return ""
    everyone = "both" if blocked.replicas == 2 else f"all {blocked.replicas}"
    named = all(one.nodes for one in blocked.would_fit)  # before: then the numbers suffice
    return f"; {everyone} with " + " and ".join(
        str(one.nodes_for_all) if named else _addition(one, one.nodes_for_all) for one in blocked.would_fit)


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
    return one.replica + (f" ({', '.join(notes)})" if notes else "")
