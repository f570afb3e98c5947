"""Why a model is blocked, by node, and the remedies, one line each. The text is not escaped yet."""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.documents.plan import Addition, Blocked, InTheWay, Reason
from fleetctl.documents.quantity import amount_of, count_of, some


def blocked_details(blocked: Blocked, *, for_all: bool = True) -> tuple[str, ...]:
    """Return the reasons and the remedies of a blocked model, one line each.

    Without `for_all` the remedies are for one replica, not for all blocked replicas.
    """
    reasons = (_reason(reason, blocked.message) for reason in blocked.reasons if reason.node_count)
    return (*reasons, *remedy_lines(blocked, for_all=for_all))


def _reason(reason: Reason, message: str) -> str:
    """Return one reason, with its arithmetic unless `message` already has it."""
    parts = [reason.code]
    if not (reason.need and reason.need in message and reason.best in message):
        amounts = (("need", reason.need), ("best", reason.best), ("short", reason.short))
        parts += [f"{word} {value}" for word, value in amounts if value and value != "none"]
    rest = reason.node_count - len(reason.examples)
    examples = ", ".join(reason.examples) + (f" and {rest} more" if reason.examples and rest > 0 else "")
    return f"{count_of(reason.node_count, 'node')}: {', '.join(parts)}" + (f" ({examples})" if examples else "")


def remedy_lines(blocked: Blocked, *, for_all: bool = True) -> Iterator[str]:
    """Yield the remedies of a blocked model, one line each."""
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
    return f"{count_of(nodes, 'more node')} ({shape})" + (f" labeled {labels}" if labels else "")


def _for_all(blocked: Blocked) -> str:
    if blocked.replicas == 1:
        return ""
    all_replicas = "both" if blocked.replicas == 2 else f"all {blocked.replicas}"
    shapes_named = all(one.nodes for one in blocked.would_fit)  # earlier in the line; numbers are enough here
    return f"; {all_replicas} with " + " and ".join(
        str(one.nodes_for_all) if shapes_named else _addition(one, one.nodes_for_all) for one in blocked.would_fit)


def _replica(one: InTheWay) -> str:
    """Name a replica, with notes unless it runs, belongs to this fleet and has no priority."""
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
