"""Differences outside of models: name, cluster, policy, node policies, and their effects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fleet_texts import fleet, model

from fleetctl.documents.difference import Difference
from fleetctl.review.compare import compare
from fleetctl.review.inputs import Side

Sides = Callable[..., Side]
L4, A100 = "{pool: l4}", "{pool: a100}"
CPU_ONLY = model("cpu", workers=[{"name": "main", "members": [
    {"resources": {"cpus": 1}, "engine": {"command": ["x"]}}]}])


def found(side: Sides, old: str, new: str, *models: str) -> list[Difference]:
    texts = [fleet(*(models or (model(),)), spec=spec) for spec in (old, new)]
    return compare(side(texts[0], name="old"), side(texts[1], name="new")).differences


def entries(*lines: str) -> str:
    return "nodes:\n" + "".join(f"- {{{line}}}\n" for line in lines)


CHANGES: dict[str, tuple[str, str, tuple[str, str, str, Any, Any]]] = {
    "a cordon": ("", entries(f"selector: {L4}, cordon: true"), ("nodes[0].cordon", "added", "none", None, True)),
    "a lifted cordon": (entries("cordon: true"), entries("cordon: false"),
                        ("nodes[0].cordon", "changed", "additive", True, False)),
    "an entry taken out": (entries(f"selector: {L4}, cordon: true"), "",
                           ("nodes[0].cordon", "removed", "additive", True, None)),
    "a lower cap": (entries("maxReplicasPerModel: 4"), entries("maxReplicasPerModel: 2"),
                    ("nodes[0].maxReplicasPerModel", "changed", "drift", 4, 2)),
    "a higher cap": (entries("maxReplicasPerModel: 4"), entries("maxReplicasPerModel: 8"),
                     ("nodes[0].maxReplicasPerModel", "changed", "additive", 4, 8)),
    "a cap where there was none": ("", entries("maxReplicasPerModel: 4"),
                                   ("nodes[0].maxReplicasPerModel", "added", "drift", None, 4)),
    "no cap any more": (entries("maxReplicasPerModel: 4"), "",
                        ("nodes[0].maxReplicasPerModel", "removed", "additive", 4, None)),
    "more kept free": (entries("reserve: {vram: 1Gi}"), entries("reserve: {vram: 2Gi}"),
                       ("nodes[0].reserve.vram", "changed", "none", "1Gi", "2Gi")),
    "less kept free": (entries("reserve: {vram: 2Gi}"), entries("reserve: {vram: 1024Mi}"),
                       ("nodes[0].reserve.vram", "changed", "additive", "2Gi", "1024Mi")),
    "weights behind a firewall": (entries("weightsPorts: 30000-30063"), entries("weightsPorts: none"), (
        "nodes[0].weightsPorts", "changed", "none", "30000-30063", "none")),
    "another price": (entries("price: 12.5"), entries("price: 0.80"),
                      ("nodes[0].price", "changed", "none", 12.5, 0.8)),
    "a price where there was none": ("", entries("price: 0"), ("nodes[0].price", "added", "none", None, 0)),
    "known card memory": ("", entries("gpuMemory: 24Gi"), ("nodes[0].gpuMemory", "added", "additive", None, "24Gi")),
    "smaller cards": (entries("gpuMemory: 24Gi"), entries("gpuMemory: 23Gi"),
                      ("nodes[0].gpuMemory", "changed", "none", "24Gi", "23Gi")),
    "a raised threshold": ("policy: {maxNewReplicas: 3}\n", "policy: {maxNewReplicas: 5}\n",
                           ("policy.maxNewReplicas", "changed", "additive", 3, 5)),
    "a lower threshold": ("policy: {maxNewGpus: 2}\n", "policy: {maxNewGpus: 0.5}\n",
                          ("policy.maxNewGpus", "changed", "none", 2, 0.5)),
    "a new threshold": ("", "policy: {maxChangePercent: 5}\n",
                        ("policy.maxChangePercent", "added", "none", None, 5)),
    "no threshold any more": ("policy: {maxChangePercent: 5}\n", "",
                              ("policy.maxChangePercent", "removed", "additive", 5, None)),
    "a model no longer protected": ("policy: {protectedModels: [a, b]}\n", "policy: {protectedModels: [b]}\n",
                                    ("policy.protectedModels", "changed", "additive", ["a", "b"], ["b"])),
    "one more protected model": ("policy: {protectedModels: [b]}\n", "policy: {protectedModels: [a, b]}\n",
                          ("policy.protectedModels", "changed", "none", ["b"], ["a", "b"])),
    "a raised quota": ("policy: {quotas: [{gpus: 3}]}\n", "policy: {quotas: [{gpus: 5}]}\n",
                       ("policy.quotas", "changed", "additive", [{"gpus": 3}], [{"gpus": 5}])),
    "a lower quota": ("policy: {quotas: [{gpus: 5, replicas: 2}]}\n", "policy: {quotas: [{gpus: 3, replicas: 2}]}\n", (
        "policy.quotas", "changed", "none", [{"gpus": 5, "replicas": 2}], [{"gpus": 3, "replicas": 2}])),
    "a quota without one of its limits": (
        "policy: {quotas: [{gpus: 5, replicas: 2}]}\n", "policy: {quotas: [{gpus: 4}]}\n",
        ("policy.quotas", "changed", "additive", [{"gpus": 5, "replicas": 2}], [{"gpus": 4}])),
    "a new quota": ("", "policy: {quotas: [{gpus: 4}]}\n", ("policy.quotas", "added", "none", None, [{"gpus": 4}])),
    "no quota any more": ("policy: {quotas: [{gpus: 4}]}\n", "", (
        "policy.quotas", "removed", "additive", [{"gpus": 4}], None)),
    "a shorter history": ("history: {keepRuns: 50, keepFor: 7d}\n", "history: {keepRuns: 50, keepFor: 2d}\n",
                          ("history.keepFor", "changed", "none", "7d", "2d")),
    "a longer history": ("", "history: {keepRuns: 5000}\n", ("history.keepRuns", "added", "none", None, 5000)),
    "a protected model": ("", "policy: {protectedModels: [org/*]}\n",
                          ("policy.protectedModels", "added", "none", None, ["org/*"])),
    "allowed selectors": ("policy: {allowedSelectors: {pool: [l4]}}\n",
                          "policy: {allowedSelectors: {pool: [l4, a100]}}\n",
                          ("policy.allowedSelectors", "changed", "none", {"pool": ["l4"]}, {"pool": ["l4", "a100"]})),
    "a namespace": ("", "cluster: {namespace: blue}\n", ("cluster.namespace", "changed", "additive", "fleet", "blue")),
    "a first address": ("", "cluster: {address: 'http://ray:8265'}\n",
                        ("cluster.address", "added", "none", None, "http://ray:8265")),
    "another cluster": ("cluster: {address: 'http://a:8265'}\n", "cluster: {address: 'http://b:8265'}\n",
                        ("cluster.address", "changed", "additive", "http://a:8265", "http://b:8265")),
}


@pytest.mark.parametrize(("old", "new", "expected"), CHANGES.values(), ids=CHANGES)
def test_a_change_is_reported_with_its_message_and_effect(
    side: Sides, old: str, new: str, expected: tuple[str, str, str, Any, Any]
) -> None:
    [one] = found(side, old, new)
    assert (one.path, one.kind, one.effect, one.old, one.new) == expected
    assert one.model is None


def test_an_empty_reserve_revokes_an_earlier_one(side: Sides) -> None:
    [one] = found(side, entries("reserve: {vram: 1Gi}", "selector: {a: b}"),
                  entries("reserve: {vram: 1Gi}", "selector: {a: b}, reserve: {}"))
    assert (one.path, one.kind, one.old, one.new) == ("nodes[1].reserve.vram", "added", None, "0")
    assert one.effect == "additive"


NO_CHANGE = {
    "an entry that sets nothing": ("", entries(f"selector: {L4}")),
    "a selector in another spelling": (entries('selector: {p: "in(a, b)"}, cordon: true'),
                                       entries('cordon: true, selector: {p: "in(b,a)"}')),
    "entries that set different things": (entries(f"selector: {L4}, cordon: true", "gpuMemory: 1Gi"),
                                          entries("gpuMemory: 1Gi", f"selector: {L4}, cordon: true")),
    "an entry between two that set the same": (
        entries("selector: {p: a}, cordon: true", "cordon: false", "selector: {p: c}, gpuMemory: 1Gi"),
        entries("selector: {p: c}, gpuMemory: 1Gi", "selector: {p: a}, cordon: true", "cordon: false")),
    "an empty policy": ("", "policy: {}\n"),
    "an empty list of protected models": ("", "policy: {protectedModels: []}\n"),
    "protected models in another order": ("policy: {protectedModels: [org/*, b]}\n",
                                          "policy: {protectedModels: [b, org/*]}\n"),
    "the namespace written out": ("", "cluster: {namespace: fleet}\n"),
}


@pytest.mark.parametrize(("old", "new"), NO_CHANGE.values(), ids=NO_CHANGE)
def test_another_spelling_is_no_difference(side: Sides, old: str, new: str) -> None:
    assert found(side, old, new) == []


def test_each_setting_of_an_entry_is_a_difference_that_names_its_nodes(side: Sides) -> None:
    cap, cordon = found(side, "", entries(f"selector: {L4}, cordon: true, maxReplicasPerModel: 1"))
    assert (cap.effect, cordon.effect) == ("drift", "none")
    assert cap.message.startswith("pool=l4: running replicas beyond the cap are kept")
    assert cordon.message.startswith("pool=l4: no new replicas go there")


def test_entries_without_a_selector_apply_to_every_node(side: Sides) -> None:
    [one] = found(side, "", entries("cordon: true"))
    assert one.message.startswith("every node: ")


def test_a_changed_selector_is_one_removed_and_one_added_entry(side: Sides) -> None:
    new, old = found(side, entries(f"selector: {L4}, cordon: true"), entries(f"selector: {A100}, cordon: true"))
    assert (new.kind, new.effect, old.kind, old.effect) == ("added", "none", "removed", "additive")


def test_secrets_in_an_address_are_not_shown(side: Sides) -> None:
    [one] = found(side, "", "cluster: {address: 'http://me:hunter2@ray:8265/?token=hunter2'}\n")
    assert one.new == "http://***@ray:8265/"


def test_the_order_of_entries_matters_if_both_set_the_same_key(side: Sides) -> None:
    lines = (f"selector: {L4}, cordon: true", "selector: {zone: a}, cordon: false")
    [one] = found(side, entries(*lines), entries(*reversed(lines)))
    assert (one.path, one.effect, one.old, one.new) == (
        "nodes", "additive", ["pool=l4", "zone=a"], ["zone=a", "pool=l4"])
    caps = ("selector: {pool: l4}, maxReplicasPerModel: 1", "selector: {zone: a}, maxReplicasPerModel: 2")
    [one] = found(side, entries(*caps), entries(*reversed(caps)))
    assert one.effect == "drift"


def test_the_order_of_prices_affects_no_replica(side: Sides) -> None:
    lines = ("selector: {pool: l4}, price: 1", "selector: {zone: a}, price: 2")
    [one] = found(side, entries(*lines), entries(*reversed(lines)))
    assert (one.path, one.effect) == ("nodes", "none")


def test_other_nodes_to_add_are_told_from_other_prices_of_the_same(side: Sides) -> None:
    def grow(more: str) -> str:
        node = "{gpus: 1, cpus: 4, memory: 1Gi, labels: {p: l4}}"
        return f"cluster: {{grow: [{{name: l4, node: {node}, {more}}}]}}\n"

    [one] = found(side, grow("max: 2"), grow("max: 2, price: 0.5"))
    assert (one.path, one.effect) == ("cluster.grow", "none")
    assert one.message.startswith("what new nodes cost an hour")
    [one] = found(side, grow("max: 2, price: 1"), grow("max: 3, price: 0.5"))
    assert (one.effect, one.message) == (
        "additive", "plans may wait for other new nodes than before; running replicas are not affected")
    [one] = found(side, "", grow("max: 2"))
    assert (one.kind, one.effect) == ("added", "additive")


def test_a_new_cap_is_additive_for_models_limited_to_one_per_node(side: Sides) -> None:
    [one] = found(side, "", entries("maxReplicasPerModel: 4"), CPU_ONLY)
    assert one.effect == "additive"
    [one] = found(side, entries("maxReplicasPerModel: 4"), "", CPU_ONLY)
    assert one.effect == "drift"
    [one] = found(side, entries("maxReplicasPerModel: 4"), "", CPU_ONLY, model())
    assert one.effect == "drift"  # for one of the two


def test_another_fleet_name_keeps_everything_and_names_adopt_from(side: Sides) -> None:
    old, new = fleet(model()), fleet(model()).replace("{name: lab}", "{name: prod}")
    diff = compare(side(old, name="old"), side(new, name="new"))
    [one] = diff.differences
    assert (one.path, one.effect, one.old, one.new) == ("metadata.name", "held", "lab", "prod")
    assert "--adopt-from lab" in one.message
    assert diff.fleet == "prod"


def test_list_positions_count_over_all_files(side: Sides) -> None:
    one, two = fleet(model("a"), spec=entries("cordon: true")), fleet(model("b"), spec=entries("gpuMemory: 1Gi"))
    changed = two.replace("1Gi", "2Gi")
    [difference] = compare(side(one, two, name="old"), side(one, changed, name="new")).differences
    assert difference.path == "nodes[1].gpuMemory"
    assert difference.new_source is not None
    assert difference.new_source.file.endswith("1.yaml")
    line = changed.splitlines()[difference.new_source.line - 1]
    assert line[difference.new_source.column - 1:].startswith("2Gi")


def test_the_fleet_comes_before_its_models(side: Sides) -> None:
    old = fleet(model(replicas=1), spec=entries("cordon: true"))
    new = fleet(model(replicas=2), spec=entries("cordon: false") + "policy: {maxNewReplicas: 1}\n")
    diff = compare(side(old, name="old"), side(new, name="new"))
    assert [(one.model, one.path) for one in diff.differences] == [
        (None, "policy.maxNewReplicas"), (None, "nodes[0].cordon"), ("org/a", "replicas")]
