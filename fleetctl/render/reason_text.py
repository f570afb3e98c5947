"""Why some nodes cannot take a replica, in one line with the arithmetic."""

from __future__ import annotations

from fleetctl.documents.plan import Reason
from fleetctl.documents.quantity import count_of
from fleetctl.render.visible import visible


def reason_text(reason: Reason, message: str) -> str:
    """Return the line of one kind of reason; arithmetic that already stands in the message above it is not repeated."""
    said = bool(reason.need) and reason.need in message and reason.best in message
    nodes = count_of(reason.node_count, "node")
    sums = [f"{word} {visible(value)}" for word, value in
            (("need", reason.need), ("best", reason.best), ("short", reason.short)) if value and not said]
    rest = reason.node_count - len(reason.examples)
    named = ", ".join(visible(name) for name in reason.examples)
    if named and rest > 0:
        named += f" and {rest} more"
    return f"{nodes}: {', '.join([visible(reason.code), *sums])}" + (f" ({named})" if named else "")
