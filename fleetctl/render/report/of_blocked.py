"""Why models are blocked, as a table: the reasons by node with their arithmetic, and the remedies, one line each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fleetctl.documents.plan import Addition, Blocked, InTheWay, Reason
from fleetctl.documents.quantity import amount_of, count_of, grouped, some
from fleetctl.render.report.model import CODE, MODEL, NOT_TERMINAL, TERMINAL, WHY, Column, Table

MODELS_SHOWN, NAMES_SHOWN = 10, 20


def blocked_tables(blocked: Sequence[Blocked], title: str = "Blocked") -> tuple[Table, ...]:
    """Return the blocked models with reasons and remedies; in a terminal models with the same reasons share a row."""
    rows = [(one.model, str(one.replicas), one.code, (one.message, *blocked_details(one))) for one in blocked]
    columns = (MODEL, Column("replicas", "replicas", numeric=True), CODE, WHY)
    full = Table("blocked", title, columns, tuple(rows), rank=2, line="{model}: {replicas}, {code}",
                 signs=("!",) * len(rows), limit=MODELS_SHOWN)
    by_reason = grouped(((one.code, one.message, *blocked_details(one, for_all=False)), (one, row))
                        for one, row in zip(blocked, rows, strict=True))
    short = []
    for (code, *reasons), alike in by_reason.items():
        replicas, names = str(sum(one.replicas for one, _ in alike)), some([one.model for one, _ in alike], NAMES_SHOWN)
        short.append(alike[0][1] if len(alike) == 1 else (
            count_of(len(alike), "model"), replicas, code, (names, *reasons)))
    if len(short) == len(rows):
        return (full,)
    return (replace(full, readers=NOT_TERMINAL),
            replace(full, rows=tuple(short), signs=("!",) * len(short), readers=TERMINAL))


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
    head = f"{reason.variant}: " if reason.variant else ""
    head += count_of(reason.node_count, "node")
    return f"{head}: {', '.join(parts)}" + (f" ({examples})" if examples else "")


def remedy_lines(blocked: Blocked, *, for_all: bool = True) -> Iterator[str]:
    """Yield the remedies of a blocked model, one line each."""
    if blocked.would_fit:
        added = " and ".join(_addition(one, one.nodes, one.estimated) for one in blocked.would_fit if one.nodes)
        yield f"{_variant(blocked.would_fit[0])}would fit with {added}{_for_all(blocked) if for_all else ''}"
    if blocked.make_room:
        gone = some([_replica(one) for one in blocked.make_room])
        nodes = list(dict.fromkeys(node for one in blocked.make_room for node in one.nodes))
        freed = sum(one.frees for one in blocked.make_room)
        amount = f"{amount_of(freed, 'GPU')} on" if freed else "on"
        variant = _variant(blocked.make_room[0])
        yield f"{variant}would fit without {gone}: {amount} {some(nodes)} (fleetctl removes nothing)"
    if blocked.no_remedy:
        yield blocked.no_remedy


def _variant(remedy: Addition | InTheWay) -> str:
    return f"{remedy.variant} " if remedy.variant else ""


def _addition(addition: Addition, nodes: int, estimated: bool) -> str:
    labels = ", ".join(f"{key}={value}" for key, value in addition.labels.items())
    shape = f"at least {addition.shape}" if addition.like is None else f"{addition.shape}, like {addition.like}"
    count = f"{'about ' if estimated else ''}{count_of(nodes, 'more node')}"
    shared = f" with one value of {addition.one_value_of}" if addition.one_value_of else ""
    return f"{count} ({shape})" + (f" labeled {labels}" if labels else "") + shared


def _for_all(blocked: Blocked) -> str:
    if blocked.replicas == 1 or not any(one.nodes_for_all for one in blocked.would_fit):
        return ""
    all_replicas = "both" if blocked.replicas == 2 else f"all {blocked.replicas}"
    shapes_named = all(one.nodes for one in blocked.would_fit)  # earlier in the line; numbers are enough here
    return f"; {all_replicas} with " + " and ".join(
        f"{'about ' if one.estimated_for_all else ''}{one.nodes_for_all}" if shapes_named
        else _addition(one, one.nodes_for_all, one.estimated_for_all) for one in blocked.would_fit if one.nodes_for_all)


def _replica(replica: InTheWay) -> str:
    """Name a replica, with notes unless it runs, belongs to this fleet and has no priority."""
    notes = ["not started yet"] if replica.planned else []
    if replica.surplus:
        notes.append("not in the file" if replica.priority is None else "surplus")
    if replica.owner == "otherFleet":
        notes.append(f"of fleet {replica.fleet}")
    elif replica.owner == "foreign":
        notes.append("not managed")
    if replica.priority:
        notes.append(f"priority {replica.priority}")
    return replica.replica + (f" ({', '.join(notes)})" if notes else "")
