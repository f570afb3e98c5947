"""The differences of two fleets beside their models: name, cluster, policy and node policies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fleetctl.documents.canonical import canonical_json
from fleetctl.documents.difference import Difference, Effect
from fleetctl.documents.fleet import Cluster
from fleetctl.documents.position import Path, path_text
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.inventory.address import without_secret
from fleetctl.review.compare_nodes import node_differences
from fleetctl.review.meaning import Keyed, Steps
from fleetctl.review.nested_diff import changed_ways
from fleetctl.review.source_view import WrittenFleet

_READING_ORDER = ("metadata", "cluster", "policy")
_POLICY = "plan and apply check it from now on; nothing that runs is touched"
_ADDRESS = "plans are made on another cluster, where all of this counts as missing; what runs on the old one runs on"
_FIRST_ADDRESS = "is used where neither --address nor FLEETCTL_ADDRESS says otherwise"
_NAMESPACE = ("what runs in {old} runs on and keeps its room, but no longer counts: all of it would be created again "
              "in {new}")
_NAME = ("what runs belongs to {old}: it runs on but no longer counts, and its models are blocked unless plan and "
         "apply get --adopt-from {old}")


def fleet_differences(old: WrittenFleet, new: WrittenFleet) -> Iterator[Difference]:
    """Yield the differences: name, cluster, policy, then node policies."""
    before, after = _settings(old), _settings(new)
    ways = {way[:2] for way in changed_ways(before, after)} if before != after else set()
    for way in sorted(ways, key=lambda way: (_READING_ORDER.index(way[0]), way)):
        yield _difference(way, old, new)
    yield from node_differences(old, new)


def _settings(written: WrittenFleet) -> Keyed:
    fleet = written.fleet
    policy = fleet.policy.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    if fleet.policy.schemas:
        policy["schemas"] = _house_rules(fleet)
    return {"metadata": {"name": fleet.name}, "cluster": fleet.cluster.model_dump(), "policy": _unordered(policy)}


def _house_rules(fleet: ResolvedFleet) -> list[str]:
    """Return the schemas with what is in them: another text of a file under the same name is a change too."""
    return [f"{name}@{file.sha256[:12]}"
            for name, file in zip(fleet.policy.schemas, fleet.house_rules, strict=True)]


def _unordered(value: Any) -> Any:  # noqa: ANN401  any JSON value
    if isinstance(value, dict):
        return {key: _unordered(item) for key, item in value.items()}
    if isinstance(value, list):
        return ", ".join(sorted(item if isinstance(item, str) else canonical_json(item).decode() for item in value))
    return value


def _difference(way: Steps, before: WrittenFleet, after: WrittenFleet) -> Difference:
    path: Path = way if way[0] == "metadata" else ("spec", *way)
    old, new = (_value(side, path) for side in (before, after))
    if old == new and way == ("policy", "schemas"):
        old, new = _house_rules(before.fleet), _house_rules(after.fleet)
    effect, message = _effect(way, old, new)
    return Difference(
        path=path_text(way), effect=effect, message=message, old=old, new=new,
        kind="added" if old is None else "removed" if new is None else "changed",
        old_source=before.place(path), new_source=after.place(path),
    )


def _value(written: WrittenFleet, path: Path) -> Any:  # noqa: ANN401  any YAML value
    value = written.value(path)
    if path[-1] == "address" and isinstance(value, str):
        return without_secret(value)
    return Cluster().namespace if value is None and path[-1] == "namespace" else value


def _effect(way: Steps, old: object, new: object) -> tuple[Effect, str]:
    if way == ("metadata", "name"):
        return "held", _NAME.format(old=old)
    if way == ("cluster", "namespace"):
        return "additive", _NAMESPACE.format(old=old, new=new)
    if way == ("cluster", "address"):
        return ("none", _FIRST_ADDRESS) if None in (old, new) else ("additive", _ADDRESS)
    return "none", _POLICY
