"""Rules over the fleet's policy: a pattern that protects nothing is most likely misspelt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleetctl.documents.model_pattern import matches_pattern
from fleetctl.fleetfile.nodes import Document
from fleetctl.fleetfile.raw import Raw, models
from fleetctl.fleetfile.shape import nearest
from fleetctl.problem import Problem


def check_policy(policy: Raw, documents: Sequence[Document]) -> Iterator[Problem]:
    """Yield a warning for every protected model, or pattern of models, that no document of the fleet has."""
    patterns = policy.get("protectedModels")
    if not isinstance(patterns, list):
        return
    keys = [key for document in documents for model in models(document) if (key := model.text("key")) is not None]
    for index, pattern in enumerate(patterns):
        if isinstance(pattern, str) and not any(matches_pattern(pattern, key) for key in keys):
            yield policy.document.problem(
                "FL064", (*policy.path, "protectedModels", index), f'"{pattern}" matches no model of this fleet',
                suggestion=None if "*" in pattern else nearest(pattern, keys),
            )
