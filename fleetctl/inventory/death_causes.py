"""Ray's cause of death of an actor: its texts, and the failure that the agent has packed into one of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fleetctl.documents.inventory import LAST_OUTPUT
from fleetctl.inventory.json_values import object_of, text_of

PREFIX = "FLEETCTL_FAILED "
"""What is before a failure in Ray's text; see agent/failure.py."""


def death_messages(cause: object) -> Iterator[str]:
    """Yield the messages in Ray's death cause, a mapping one level deep by kind of death."""
    for key, value in sorted(object_of(cause).items()):
        if key in ("error_message", "formatted_exception_string") and isinstance(value, str):
            yield value
        else:
            yield from death_messages(value)


def packed_failure(texts: Sequence[str]) -> Mapping[str, Any]:
    """Return what the agent has packed into a cause of death; empty where it has not."""
    for line in (line for text in reversed(texts) for line in reversed(text.splitlines())):
        _, found, packed = line.partition(PREFIX)
        if found:
            try:
                said, _ = json.JSONDecoder().raw_decode(packed)
            except (ValueError, RecursionError):
                continue
            if isinstance(said, dict) and text_of(said.get("code")):
                return said
    return {}


def why_it_ended(cause: object) -> str | None:
    """Return in one line why an actor ended: the agent's reason, else the last line of Ray's innermost message."""
    texts = list(death_messages(cause))
    if message := text_of(packed_failure(texts).get("message")):
        return message.partition(LAST_OUTPUT)[0].partition("\n")[0]
    lines = [line.strip() for text in texts for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else None
