"""Random fleets and inventories, drawn in short form."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from short_forms import short_fleet, short_inventory

from fleetctl.documents.inventory import Inventory
from fleetctl.fleetfile.resolved import ResolvedFleet

PlanningInputs = tuple[ResolvedFleet, Inventory]
KEYS = ("m0", "org/m1", "m2:x", "m3", "m4")
SELECTORS: tuple[dict[str, str], ...] = ({}, {}, {}, {"pool": "x"}, {"pool": "!x"}, {"pool": "in(x, y)"}, {"zone": "z"})
SHARED = ("key", "replicas", "priority", "surge", "spread")
ONE_POOL = {"label": "pool", "scope": "replica"}
States = st.sampled_from(["ALIVE"] * 6 + ["DRAINING", "DEAD"])


@st.composite
def _nodes(draw: st.DrawFn, exact: bool) -> list[dict[str, Any]]:
    return [draw(_node(f"n{number}", exact)) for number in range(draw(st.sampled_from([3, 2, 4, 1, 5, 0])))]


@st.composite
def _node(draw: st.DrawFn, name: str, exact: bool) -> dict[str, Any]:
    gpus = draw(st.integers(0, 4))
    node: dict[str, Any] = {
        "name": name, "gpus": gpus, "cpus": draw(st.sampled_from([2, 8])), "state": draw(States),
        "memory": draw(st.sampled_from(["4Gi", "64Gi"])),
        "labels": draw(st.sampled_from([{}, {"pool": "x"}, {"pool": "y"}, {"pool": "x", "zone": "z"}])),
    }
    slots = draw(st.sampled_from([None] * 6 + ["1", "2", "none", "0"]))
    if slots is not None:
        node["labels"] = {**node["labels"], "fleet.io/replica-slots": slots}
    noted = draw(st.sampled_from([None] * 6 + [0, 1, 3]))
    if noted is not None:
        node["slots"] = {"value": noted, "source": "note of ana"}
    if draw(st.integers(0, 9)) == 9:
        node["cordon"] = {"by": "ana"}
    if draw(st.booleans()):
        node["vram"] = draw(st.sampled_from(["16Gi", "24Gi", "80Gi"]))
        if gpus and draw(st.integers(0, 3)) == 0:
            node["measured"] = {draw(st.integers(0, gpus - 1)): draw(st.sampled_from(["500Mi", "3Gi", "12Gi"]))}
        if gpus and draw(st.integers(0, 3)) == 0:
            node["share"] = {draw(st.integers(0, gpus - 1)): draw(st.sampled_from([0.3, 0.5, 1.0]))}
    if not exact and draw(st.booleans()):
        node["used"] = {"GPU": draw(st.sampled_from([0, 0.5, 1, 1.5, 3])), "CPU": draw(st.integers(0, 2))}
    return node


@st.composite
def _replicas(draw: st.DrawFn, nodes: list[dict[str, Any]], exact: bool) -> list[dict[str, Any]]:
    replicas: list[dict[str, Any]] = []
    names: set[tuple[str, int]] = set()
    granted: dict[tuple[str, int], float] = {}
    places = [*nodes, {"name": "gone", "gpus": 1}]
    for _ in range(draw(st.integers(0, 6))):
        key, number = draw(st.sampled_from([*KEYS, "unlisted"])), draw(st.integers(0, 4))
        node = draw(st.sampled_from(places))
        if (key, number) in names:
            continue
        names.add((key, number))
        gpus = draw(st.sampled_from([0, 0.25, 0.5, 1])) if node["gpus"] else 0
        replica: dict[str, Any] = {
            "model": key, "id": number, "node": node["name"], "gpus": gpus, "cpus": draw(st.integers(0, 1)),
            "state": draw(st.sampled_from(["ALIVE", "ALIVE", "PENDING_CREATION", "RESTARTING", "DEAD"])),
            "constructed": draw(st.sampled_from([True, True, True, False])),
            "fleet": draw(st.sampled_from(["lab"] * 6 + ["other", None])),
            "hash": draw(st.sampled_from([None, "old", f"new-{key}"])),
        }
        if gpus and (exact or draw(st.booleans())):
            card = draw(st.integers(0, node["gpus"] - 1))
            granted[node["name"], card] = granted.get((node["name"], card), 0) + gpus
            if granted[node["name"], card] > 1:
                continue
            replica["cards"] = [card]
            replica["vram"] = draw(st.sampled_from([0, "3Gi"]))
        replicas.append(replica)
    return replicas


@st.composite
def _member(draw: st.DrawFn) -> dict[str, Any]:
    member = {"selector": draw(st.sampled_from(SELECTORS)), "cpus": draw(st.sampled_from([0, 0.5, 1, 3])),
              "memory": draw(st.sampled_from([0, "3Gi"]))}
    kind = draw(st.integers(0, 5))
    if kind == 0:
        return {**member, "cpus": 1}
    if kind == 1:
        return {**member, "vram": draw(st.sampled_from(["2Gi", "7Gi", "20Gi"]))}
    member["gpus"] = draw(st.sampled_from([0.25, 0.4, 0.5, 0.6, 1, 1, 2, 3]))
    return {**member, "vram": draw(st.sampled_from([0, 0, "5Gi", "20Gi"]))}


@st.composite
def _model(draw: st.DrawFn, key: str) -> dict[str, Any]:
    priority = draw(st.sampled_from([0, 0, 7]))
    model: dict[str, Any] = {"key": key, "replicas": draw(st.integers(0, 5)), "priority": priority,
                             "surge": draw(st.sampled_from([0, 0, 1, 2])), "hash": f"new-{key}"}
    shape = draw(st.integers(0, 4))
    if shape == 0:
        model["gang"] = {**draw(_member()), "workers": draw(st.integers(1, 2))}
        model["ranksPerNode"] = draw(st.integers(1, 2))
        if draw(st.booleans()):
            model["sameLabel"] = draw(st.sampled_from(["pool", ONE_POOL]))
    elif shape == 1:
        model["workers"] = [{"name": f"g{number}", "copies": draw(st.integers(1, 2)),
                             "members": [_in_full(draw(_member()))]} for number in range(draw(st.integers(1, 2)))]
        if draw(st.booleans()):
            model["sameLabel"] = ONE_POOL
    else:
        model.update(draw(_member()))
    spread = draw(st.sampled_from([None] * 5 + ["pool", "ray.io/node-id", "zone"]))
    if spread is not None:
        limit = draw(st.sampled_from([None, None, 1, 2]))
        model["spread"] = spread if limit is None else {"label": spread, "maxPerValue": limit}
    return model


@st.composite
def _with_variants(draw: st.DrawFn, model: dict[str, Any]) -> dict[str, Any]:
    """The same model in up to four variants: its own shape, and others."""
    key = model["key"]
    shapes = [model, *(draw(_model(key)) for _ in range(draw(st.sampled_from([1, 1, 2, 3, 0]))))]
    variants = []
    for number, shape in enumerate(shapes):
        own = {name: value for name, value in shape.items() if name not in SHARED}
        least = draw(st.sampled_from([0, 0, 0, 1, 3]))
        limit = draw(st.sampled_from([None, None, None, 1, 2]))
        variants.append({**own, "name": f"v{number}", "hash": f"new-{key}-{number}", "min": least,
                         "max": None if limit is None else max(least, limit)})
    if all(one["max"] is not None for one in variants):
        variants[0]["max"] = None  # a file whose maxima are below its target is refused
    return {**{name: value for name, value in model.items() if name in SHARED}, "variants": variants}


@st.composite
def _as_variants(draw: st.DrawFn, replica: dict[str, Any], models: list[dict[str, Any]]) -> dict[str, Any]:
    """A live replica of one of the variants of its model, or of one that its file does not have, or of none."""
    variants = next((model["variants"] for model in models if model["key"] == replica["model"]), [])
    if not variants or draw(st.integers(0, 5)) == 0:
        return {**replica, "variant": draw(st.sampled_from([None, "gone"]))}
    one = draw(st.sampled_from(variants))
    return {**replica, "variant": one["name"], "hash": draw(st.sampled_from([one["hash"], one["hash"], "old"]))}


def _in_full(member: dict[str, Any]) -> dict[str, Any]:
    return {"resources": {key: value for key, value in member.items() if key != "selector"},
            "nodeSelector": member["selector"]}


Policies = st.lists(st.fixed_dictionaries({}, optional={
    "selector": st.sampled_from([{"pool": "x"}, {"pool": "!x"}]), "maxReplicasPerModel": st.integers(0, 3),
    "reserve": st.just({"vram": "1Gi"}), "gpuMemory": st.just("16Gi"), "cordon": st.sampled_from([False, False, True]),
}), max_size=2)


@st.composite
def planning_inputs(draw: st.DrawFn, *, exact: bool = False, variants: bool = False) -> PlanningInputs:
    """Return a fleet and an inventory.

    `exact` = the card of every granted share is known; `variants` = models may have some.
    """
    nodes = draw(_nodes(exact))
    replicas = draw(_replicas(nodes, exact))
    models = [draw(_model(key)) for key in KEYS[: draw(st.integers(1, len(KEYS)))]]
    if variants:
        models = [draw(_with_variants(model)) for model in models]
        replicas = [draw(_as_variants(replica, models)) for replica in replicas]
    fleet = short_fleet({"nodes": draw(Policies), "models": models})
    return fleet, short_inventory({"nodes": nodes, "replicas": replicas})
