"""Random valid fleets, and ways to split one into files that extend each other and mean the same together."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml
from hypothesis import strategies as st

Json = Any
JUNK = {str: "junk", int: 7, float: 7.5, bool: False, list: ["junk"]}
KEYED = {("spec", "models"): "key", ("spec", "models", "workers"): "name",
         ("spec", "models", "workers", "members"): "role"}

texts = st.sampled_from(["a", "on", "12:30", "0x10", "1", "a b", "a: b", "x #y", "- z", "ü\t", "one\ntwo\n", "\u202e!",
                         "y", "$(FLEETCTL_PORT)", "--port", "'", '"\\', "[", "{}", "*a", "%", "null", "~", "=", "<<"])
engines = st.fixed_dictionaries(
    {"command": st.lists(texts, min_size=1, max_size=3)},
    optional={"args": st.lists(texts, max_size=3), "env": st.dictionaries(
        st.sampled_from(["A", "B", "C"]), texts | st.just({"fromNode": "X"}), max_size=3),
        "readiness": st.sampled_from([{"tcp": {}}, {"http": {"path": "/h"}, "period": "2s"}])})
resources = st.fixed_dictionaries({"gpus": st.sampled_from([1, 0.5, 8])}, optional={
    "vram": st.sampled_from(["16Gi", 1 << 30]), "cpus": st.sampled_from(["500m", 2])})

weights = st.fixed_dictionaries({"from": st.sampled_from([[{"path": "/m"}], [{"hf": "a/b"}, {"path": "/m"}]]),
                                 "index": st.sampled_from(["a" * 64, "1" * 64])},
                                optional={"view": st.sampled_from([{"files": "*-$(FLEETCTL_RANK)*"}, {"tensors": "q"},
                                                                   {"shard": {"rules": [{"match": "q"}]}}])})


def members(role: str) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries({"role": st.just(role), "resources": resources, "engine": engines},
                                 optional={"nodeSelector": st.just({"zone": "in(a, b)"}), "weights": weights})


groups = st.one_of(members("Standalone").map(lambda one: [one]),
                   st.tuples(members("Leader"), members("Worker")).map(list))
models = st.fixed_dictionaries({"replicas": st.integers(0, 9), "workers": st.dictionaries(
    st.sampled_from(["main", "side"]), groups, min_size=1).map(
        lambda found: [{"name": name, "members": inside} for name, inside in found.items()])},
    optional={"priority": st.integers(-3, 3), "placement": st.just({"spread": "zone"})})
specs = st.fixed_dictionaries(
    {"models": st.dictionaries(st.sampled_from(["org/a", "b:c", "d#e", "f{g"]), models, min_size=1, max_size=3).map(
        lambda found: [{"key": key, **model} for key, model in found.items()])},
    optional={"nodes": st.lists(st.sampled_from([{"cordon": True}, {"reserve": {"vram": "1Gi"}}]), max_size=3),
              "policy": st.just({"maxNewReplicas": 3, "protectedModels": ["*"]}),
              "defaults": st.just({"priority": 1, "restart": {"max": 2}}), "cluster": st.just({"namespace": "n"})})
HEAD = {"apiVersion": "fleetctl/v1", "kind": "Fleet", "metadata": {"name": "lab"}}
fleets = specs.map(lambda spec: {**HEAD, "spec": spec})


@st.composite
def split(draw: st.DrawFn, value: Json, path: tuple[str, ...] = ()) -> tuple[Json, Json]:
    """Two values of the same kind that merge into `value`; replaced parts of the first are arbitrary."""
    if isinstance(value, dict) and value:
        return draw(_split_mapping(value, path))
    if path in KEYED:
        return draw(_split_named(value, path))
    if path == ("spec", "nodes"):
        cut = draw(st.integers(0, len(value)))
        return value[:cut], value[cut:]
    return JUNK.get(type(value), value), value


@st.composite
def _split_mapping(draw: st.DrawFn, value: Mapping[str, Json], path: tuple[str, ...]) -> tuple[Json, Json]:
    base, over = {}, {}
    for key, inner in value.items():
        named = key == KEYED.get(path) or path in ((), ("metadata",))
        sides = "both" if named or path[-1:] == ("readiness",) else draw(st.sampled_from(["base", "over", "both"]))
        first, second = (inner, inner) if named and not isinstance(inner, dict) else draw(split(inner, (*path, key)))
        base |= {key: inner if sides == "base" else first} if sides != "over" else {}
        over |= {key: inner if sides == "over" else second} if sides != "base" else {}
    return base, over


@st.composite
def _split_named(draw: st.DrawFn, value: list[Json], path: tuple[str, ...]) -> tuple[Json, Json]:
    # items of only the second file come last, and a gang merges only with a gang
    shared = len(value) if path[-1] == "members" else draw(st.integers(0, len(value)))
    base, over = [], []
    for number, item in enumerate(value):
        if number >= shared:
            over.append(item)
        elif path[-1] != "members" and draw(st.booleans()):
            base.append(item)
        else:
            first, second = draw(split(item, path))
            base.append({**first, KEYED[path]: item[KEYED[path]]})
            over.append({**second, KEYED[path]: item[KEYED[path]]})
    return base, over


@st.composite
def written(draw: st.DrawFn, document: Json) -> str:
    """The text of a document, as JSON or as block YAML."""
    if draw(st.booleans()):
        return json.dumps(document, indent=draw(st.sampled_from([None, 1])))
    flow = draw(st.sampled_from([None, False]))
    return str(yaml.safe_dump(document, sort_keys=draw(st.booleans()), default_flow_style=flow))


@st.composite
def fleets_in_files(draw: st.DrawFn) -> tuple[Json, dict[str, str]]:
    """A fleet, and three files with the same meaning: `fleet.yaml` extends `middle.yaml`, which extends `base.yaml`."""
    whole = draw(fleets)
    below, over = draw(split(whole))
    base, middle = draw(split(below))
    parts = {"base.yaml": base, "middle.yaml": {**middle, "extends": "base.yaml"},
             "fleet.yaml": {**over, "extends": ["middle.yaml"]}}
    return whole, {file: draw(written(part)) for file, part in parts.items()}
