"""Rules over all documents of one run: one fleet name, unique model keys, no setting twice, at least one model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice

from pydantic_core import PydanticCustomError

from fleetctl.documents.fleet import MAX_PROTECTED, MAX_QUOTAS, matches_pattern
from fleetctl.documents.nearest import nearest
from fleetctl.documents.quantity import parse_duration
from fleetctl.documents.selector import matches
from fleetctl.fleetfile.nodes import Document, Raw, models, repeated, root
from fleetctl.fleetfile.rules_model import check_regexes, check_updates
from fleetctl.problem import Problem

_ONCE = {"cluster": "FL050", "defaults": "FL051", "policy": "FL057", "history": "FL088"}


def check_fleet(documents: Sequence[Document]) -> Iterator[Problem]:
    """Yield the conflicts between documents; each names both places."""
    views = [root(document) for document in documents]
    named = [metadata for view in views if (metadata := view.child("metadata")).text("name") is not None]
    for metadata in named[1:]:
        if (name := metadata.text("name")) != (other := named[0].text("name")):
            yield metadata.problem("FL049", f'the fleet is "{name}" here and "{other}" at {named[0].at("name")}',
                                   key="name", allowed="the same fleet name in all files of a run")
    specs = [view.child("spec") for view in views]
    for key, code in _ONCE.items():
        having = [spec for spec in specs if spec.get(key) is not None]
        for spec in having[1:]:
            yield spec.problem(code, f"spec.{key} is already set at {having[0].at(key)}", key=key, on_key=True)
    for spec in specs:
        for first, kind in repeated(spec.child("cluster").items("grow"), "name"):
            message = f'duplicate node type "{kind.text("name")}"; the first is at {first.at("name")}'
            yield kind.problem("FL058", message, key="name")
    for first, model in repeated((model for document in documents for model in models(document)), "key"):
        message = f'duplicate model key "{model.text("key")}"; the first is at {first.at("key")}'
        yield model.problem("FL040", message, key="key")
    yield from check_regexes(documents)


def check_whole(documents: Sequence[Document]) -> Iterator[Problem]:
    """Yield the problems that can only be found if every file could be read."""
    lists = all(isinstance(root(document).child("spec").get("models") or [], list) for document in documents)
    if documents and lists and not any(True for document in documents for _ in models(document)):
        # an empty fleet is never assumed
        yield root(documents[0]).child("spec").problem("FL052", "this fleet has no models", on_key=True,
                                                       allowed="at least one model, which may have replicas: 0")
    yield from check_updates(documents)
    policies = (root(document).child("spec").child("policy") for document in documents)
    policy = next((policy for policy in policies if policy.value), None)  # a second one is a problem of its own
    if policy is not None:
        yield from _protected_models(policy, documents)
        yield from _unmatched_quotas(policy, documents)
        yield from _cooldown(policy.child("cooldown"))


def _protected_models(policy: Raw, documents: Sequence[Document]) -> Iterator[Problem]:
    keys = [key for document in documents for model in models(document) if (key := model.text("key")) is not None]
    known = set(keys)
    for path, pattern in islice(policy.texts("protectedModels"), MAX_PROTECTED):
        if pattern not in known and not any(matches_pattern(pattern, key) for key in keys if "*" in pattern):
            yield policy.document.problem("FL064", path, f'"{pattern}" matches no model of this fleet',
                                          suggestion=None if "*" in pattern else nearest(pattern, keys))


def _unmatched_quotas(policy: Raw, documents: Sequence[Document]) -> Iterator[Problem]:
    labels = [model.child("labels").value for document in documents for model in models(document)]
    for quota in islice(policy.items("quotas"), MAX_QUOTAS):
        selector = quota.child("selector").value
        with suppress(TypeError, ValueError):  # an invalid selector is a problem of its own
            if not any(matches(selector, one) for one in labels):
                yield quota.problem("FL076", "this quota matches no model of this fleet", key="selector")


def _cooldown(cooldown: Raw) -> Iterator[Problem]:
    with suppress(PydanticCustomError):  # an invalid duration is a problem of its own
        first, longest = parse_duration(cooldown.get("first") or "5m"), parse_duration(cooldown.get("max") or "1h")
        if first > longest:
            yield cooldown.problem("FL079", f"first is longer than max, so every cooldown lasts max: {longest} s",
                                   key="first" if cooldown.get("first") else "max")
