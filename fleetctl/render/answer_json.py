"""Answers to questions (capacity, what-if, the placement map) as JSON: the document itself."""

from __future__ import annotations

import json

from fleetctl.documents.base import Stored


def render_answer_json(answer: Stored) -> str:
    """Return the document, indented, with a line end. None of these holds an env value."""
    document = answer.model_dump(mode="json", by_alias=True)
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
