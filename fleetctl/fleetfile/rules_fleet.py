"""Rules over all documents of one run: one fleet name, each model key once, what stands at most once, some model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleetctl.documents.fleet import matches_pattern
from fleetctl.documents.nearest import nearest
from fleetctl.fleetfile.nodes import Document
from fleetctl.fleetfile.raw import Raw, models, root
from fleetctl.problem import Problem

_ONCE = {"cluster": "FL050", "defaults": "FL051", "policy": "FL057"}


def check_fleet(documents: Sequence[Document]) -> Iterator[Problem]:
    """Yield what is wrong between documents; both places are named."""
    views = [root(document) for document in documents]
    yield from _names(views)
    for key, code in _ONCE.items():
        yield from _once([view.child("spec") for view in views], key, code)
    yield from _model_keys(documents)


def check_whole(documents: Sequence[Document]) -> Iterator[Problem]:
    """Yield what can be said only of a fleet of which nothing is missing."""
    yield from _not_empty(documents)
    for document in documents:
        yield from _protected_models(root(document).child("spec").child("policy"), documents)


def _not_empty(documents: Sequence[Document]) -> Iterator[Problem]:
    """Yield a problem when no document names a model: that nothing is wanted is never guessed."""
    if documents and not any(True for document in documents for _ in models(document)):
        view = root(documents[0])
        if all(isinstance(root(document).child("spec").get("models") or [], list) for document in documents):
            yield view.child("spec").problem("FL052", "no models in this fleet", on_key=True,
                                             allowed="at least one; a model with replicas: 0 has no target")


def _protected_models(policy: Raw, documents: Sequence[Document]) -> Iterator[Problem]:
    """Yield a warning for every protected model, or pattern of models, that no document of the fleet has."""
    patterns = policy.get("protectedModels")
    keys = [key for document in documents for model in models(document) if (key := model.text("key")) is not None]
    for index, pattern in enumerate(patterns if isinstance(patterns, list) else ()):
        if isinstance(pattern, str) and not any(matches_pattern(pattern, key) for key in keys):
            yield policy.document.problem(
                "FL064", (*policy.path, "protectedModels", index), f'"{pattern}" matches no model of this fleet',
                suggestion=None if "*" in pattern else nearest(pattern, keys),
            )


def _names(views: list[Raw]) -> Iterator[Problem]:
    first: Raw | None = None
    for view in views:
        metadata = view.child("metadata")
        name = metadata.text("name")
        if name is None:
            continue
        if first is not None and name != first.text("name"):
            other = f'"{first.text("name")}" at {first.at("name")}'
            yield metadata.problem("FL049", f'the fleet "{name}" in one run with {other}', key="name",
                                   allowed="one fleet name in all files of a run")
        first = first or metadata


def _once(specs: list[Raw], key: str, code: str) -> Iterator[Problem]:
    having = [spec for spec in specs if spec.get(key) is not None]
    for spec in having[1:]:
        yield spec.problem(code, f"spec.{key} is already at {having[0].at(key)}", key=key, on_key=True)


def _model_keys(documents: Sequence[Document]) -> Iterator[Problem]:
    first: dict[str, Raw] = {}
    for document in documents:
        for model in models(document):
            key = model.text("key")
            if key is None:
                continue
            if key in first:
                yield model.problem("FL040", f'the model "{key}" is already at {first[key].at("key")}', key="key")
            first.setdefault(key, model)
