"""Random fleets as documents, and single changes with their effects."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import yaml
from hypothesis import strategies as st

Json = dict[str, Any]
SECRETS = ("zs-secret-one-zs", "zs-secret-two-zs", "zs-\nsecret: three-zs")
NAMES = st.sampled_from(["a", "b-2", "main", "prefill"])
LABELS = st.sampled_from(["pool", "ray.io/accelerator-type", "zone"])


def _engine() -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries(
        {"command": st.lists(st.sampled_from(["vllm", "serve", "--x", "a b"]), min_size=1, max_size=3)},
        optional={
            "args": st.lists(st.sampled_from(["--len", "8192", "--port", "$(FLEETCTL_PORT)", "é"]), max_size=4),
            "env": st.dictionaries(st.sampled_from(["A", "__TOKEN", "x.y", "root['a']", 'q"\\', "é"]),
                                   st.sampled_from(SECRETS) | st.just({"fromNode": "HF_TOKEN"}), max_size=3),
            "readiness": st.sampled_from([{"http": {"path": "/h"}}, {"tcp": {}}, {"exec": {"command": ["x"]}}]),
        })


def _member(role: str) -> st.SearchStrategy[Json]:
    resources = st.fixed_dictionaries(
        {"gpus": st.sampled_from([1, 2, 0.5])},
        optional={"vram": st.sampled_from(["16Gi", "1.5Gi", 1 << 30]), "cpus": st.sampled_from([1, "500m"])})
    always: dict[str, st.SearchStrategy[Any]] = {"resources": resources, "engine": _engine()}
    if role != "Standalone":
        always["role"] = st.just(role)
    selector = st.dictionaries(LABELS, st.sampled_from(["x", "!x", "in(a, b)"]), max_size=2)
    return st.fixed_dictionaries(always, optional={"nodeSelector": selector} | (
        {"count": st.integers(1, 4)} if role == "Worker" else {}))


def _group(name: str) -> st.SearchStrategy[Json]:
    alone = _member("Standalone").map(lambda one: [one])
    gang = st.tuples(_member("Leader"), _member("Worker")).map(list)
    return st.fixed_dictionaries({"name": st.just(name), "members": alone | gang},
                                 optional={"copies": st.integers(1, 3)})


def _model(key: str) -> st.SearchStrategy[Json]:
    groups = st.lists(NAMES, min_size=1, max_size=2, unique=True).flatmap(
        lambda names: st.tuples(*(_group(name) for name in names)).map(list))
    return st.fixed_dictionaries(
        {"key": st.just(key), "replicas": st.integers(0, 5), "workers": groups},
        optional={"priority": st.integers(-3, 3), "startupTimeout": st.sampled_from(["90s", "15m"]),
                  "restart": st.just({"max": 2}), "placement": st.just({"spread": "zone"})})


FLEETS: st.SearchStrategy[Json] = st.builds(
    lambda models, nodes: {"apiVersion": "fleetctl/v1", "kind": "Fleet", "metadata": {"name": "lab"},
                           "spec": {"defaults": {"schedulingTimeout": "2m"}, "nodes": nodes, "models": models}},
    st.lists(st.sampled_from(["org/a", "org/b:1", "c{d}#e", "é/日本"]), min_size=1, max_size=3, unique=True).flatmap(
        lambda keys: st.tuples(*(_model(key) for key in keys)).map(list)),
    st.lists(st.fixed_dictionaries({"maxReplicasPerModel": st.integers(1, 5)},
                                   optional={"selector": st.just({"pool": "x"})}), max_size=2),
)


def as_yaml(document: Json, *, shuffle: random.Random | None = None) -> str:
    """The document as block YAML; with `shuffle` other quotes, comments, and another order of keys."""
    if shuffle is None:
        return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=10_000)
    text = yaml.safe_dump(_shuffled(document, shuffle), sort_keys=False, allow_unicode=True, width=10_000,
                          default_flow_style=shuffle.random() < 0.3, indent=shuffle.choice([2, 4]))
    return f"# a comment\n\n{text}# and another\n"


def _shuffled(value: Any, shuffle: random.Random) -> Any:
    if isinstance(value, dict):
        items = list(value.items())
        shuffle.shuffle(items)
        return {key: _shuffled(item, shuffle) for key, item in items}
    return [_shuffled(item, shuffle) for item in value] if isinstance(value, list) else value


def _set(*way: Any, to: Callable[[Any], Any]) -> Callable[[Json], None]:
    def change(model: Json) -> None:
        inner = model
        for step in way[:-1]:
            inner = inner[step] if isinstance(step, int) else inner.setdefault(step, {})
        inner[way[-1]] = to(inner.get(way[-1]))

    return change


MEMBER = ("workers", 0, "members", 0)
CHANGES: dict[str, tuple[Callable[[Json], None], str]] = {
    "replicas up": (_set("replicas", to=lambda old: old + 1), "additive"),
    "replicas down": (_set("replicas", to=lambda old: old - 1), "held"),
    "priority": (_set("priority", to=lambda old: (old or 0) + 1), "none"),
    "startupTimeout": (_set("startupTimeout", to=lambda old: "2h"), "none"),
    "schedulingTimeout": (_set("schedulingTimeout", to=lambda old: "3m"), "none"),
    "restart.max": (_set("restart", "max", to=lambda old: 9), "none"),
    "restart.backoff": (_set("restart", "backoff", to=lambda old: "1m"), "none"),
    "update": (_set("update", "mode", to=lambda old: "surge"), "additive"),
    "spread": (_set("placement", "spread", to=lambda old: "rack"), "drift"),
    "copies": (_set("workers", 0, "copies", to=lambda old: (old or 1) + 1), "drift"),
    "gpus": (_set(*MEMBER, "resources", "gpus", to=lambda old: 4), "drift"),
    "vram": (_set(*MEMBER, "resources", "vram", to=lambda old: "3Gi"), "drift"),
    "memory": (_set(*MEMBER, "resources", "memory", to=lambda old: "3Gi"), "drift"),
    "cpus": (_set(*MEMBER, "resources", "cpus", to=lambda old: 7), "drift"),
    "nodeSelector": (_set(*MEMBER, "nodeSelector", "rack", to=lambda old: "!in(a, b)"), "drift"),
    "command": (_set(*MEMBER, "engine", "command", to=lambda old: [*old, "--more"]), "drift"),
    "args": (_set(*MEMBER, "engine", "args", to=lambda old: ["--first", *(old or ())]), "drift"),
    "env": (_set(*MEMBER, "engine", "env", "NEW", to=lambda old: SECRETS[0]), "drift"),
    "workdir": (_set(*MEMBER, "engine", "workdir", to=lambda old: "/srv/engine"), "drift"),
    "liveness": (_set(*MEMBER, "engine", "liveness", to=lambda old: {"tcp": {}}), "drift"),
}


def changed(document: Json, index: int, name: str) -> Json:
    """The document with one change of one model."""
    result = copy.deepcopy(document)
    CHANGES[name][0](result["spec"]["models"][index])
    return result
