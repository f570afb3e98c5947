"""Random fleet files, and the live fleet after they are applied, for the import from the live fleet."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from fleetctl.apply.history import Recorded, SpecOf, recorded_in
from fleetctl.apply.prepare import apply_record
from fleetctl.documents.inventory import Inventory, Replica
from fleetctl.documents.plan import Action, Plan
from fleetctl.fleetfile.load import load_fleet
from fleetctl.planner.options import PlanFacts, PlanOptions
from fleetctl.planner.plan import make_plan

NODES = [{"id": f"id-{name}", "name": name, "labels": {"pool": pool},
          "resources": {"total": {"GPU": 8, "CPU": 64, "memory": 1 << 40}},
          "gpus": [{"index": index, "memoryTotal": 80 << 30, "memoryUsed": 0} for index in range(8)]}
         for name, pool in (("a", "x"), ("b", "x"), ("c", "y"), ("d", "y"))]

Probes = st.fixed_dictionaries(
    {"http": st.sampled_from([{}, {"path": "/health"}, {"path": "/", "port": 8000}])},
    optional={"period": st.sampled_from(["200ms", "1s", "90s", "1h30m", "0.3s", "2m"]),
              "timeout": st.sampled_from(["5s", "250ms"]), "failureThreshold": st.sampled_from([1, 3])})
Engines = st.fixed_dictionaries(
    {"command": st.sampled_from([["vllm", "serve", "m"], ["sh", "-c", "exec x: y # z\n"], ["ünïcode", "a'b\"c"]])},
    optional={"args": st.lists(st.sampled_from(["-p", "$(FLEETCTL_PORT)", "", "null", "1e3", "{a: b}"]), max_size=3),
              "workdir": st.just("/srv"), "readiness": Probes, "liveness": Probes,
              "env": st.dictionaries(st.sampled_from(["A", "B"]), st.just({"fromNode": "HF_TOKEN"}), max_size=2)})
Resources = st.fixed_dictionaries(
    {"gpus": st.sampled_from([0.25, 0.3333, 1, 2])},
    optional={"vram": st.sampled_from([0, "16Gi", "500M", 1234567891, "1.5Gi"]),
              "cpus": st.sampled_from([2, "500m", 0.1, "1.5"]), "memory": st.sampled_from(["8Gi", 12345])})
Members = st.fixed_dictionaries(
    {"engine": Engines, "resources": Resources},
    optional={"nodeSelector": st.sampled_from([{}, {"pool": "x"}, {"pool": "in(x, y)"}, {"pool": "!z"}])})


@st.composite
def _members(draw: st.DrawFn) -> list[dict[str, Any]]:
    if draw(st.booleans()):
        role = draw(st.sampled_from([{}, {"role": "Standalone"}]))
        return [{**role, **draw(Members)}]
    counts = st.sampled_from([{}, {"count": 1}, {"count": 2}])
    return [{"role": "Leader", **draw(Members)},
            *({"role": "Worker", **draw(counts), **draw(Members)} for _ in range(draw(st.integers(1, 2))))]


@st.composite
def _model(draw: st.DrawFn, key: str) -> dict[str, Any]:
    optional = draw(st.fixed_dictionaries({}, optional={
        "priority": st.sampled_from([0, 5, -3]), "startupTimeout": st.sampled_from(["30m", "90s", "1h1s"]),
        "schedulingTimeout": st.sampled_from(["1m", "1.5s"]),
        "restart": st.sampled_from([{}, {"max": 0}, {"backoff": "100ms"}, {"max": 5, "backoff": "10s"}]),
        "placement": st.sampled_from([{}, {"ranksPerNode": 3}, {"sameLabel": "pool", "ranksPerNode": 4},
                                      {"sameLabel": {"label": "pool", "scope": "replica"}},
                                      {"spread": "ray.io/node-id"}])}))
    groups = [{"name": f"g{number}", **draw(st.sampled_from([{}, {"copies": 1}, {"copies": 2}])),
               "members": draw(_members())} for number in range(draw(st.integers(1, 2)))]
    return {"key": key, "replicas": draw(st.integers(0, 3)), **optional, "workers": groups}


@st.composite
def fleets(draw: st.DrawFn) -> dict[str, Any]:
    """A fleet `lab` as plain values, without node policies, which a live fleet does not show."""
    defaults = draw(st.fixed_dictionaries({}, optional={
        "priority": st.just(9), "placement": st.sampled_from([{"ranksPerNode": 2}, {"spread": "pool"}]),
        "restart": st.just({"max": 2}), "startupTimeout": st.just("10m")}))
    keys = draw(st.lists(st.sampled_from(["m", "org/m:1", "a#b", "{x}", "null", "7", "y"]), min_size=1, max_size=4,
                         unique=True))
    spec = {"models": [draw(_model(key)) for key in keys], **({"defaults": defaults} if defaults else {})}
    return {"apiVersion": "fleetctl/v1", "kind": "Fleet", "metadata": {"name": "lab"}, "spec": spec}


def plan_of(text: str, inventory: Inventory) -> Plan:
    """Plan a fleet file."""
    return make_plan(load_fleet(["-"], stdin=text.encode), inventory, PlanOptions(), PlanFacts(tool_version="t"))


def inventory_of(*replicas: Replica | dict[str, Any], dead: tuple[str, ...] = (), **more: Any) -> Inventory:
    """Four nodes with eight cards each, and the replicas on them."""
    nodes = [{**node, "state": "DEAD"} if node["name"] in dead else node for node in NODES]
    return Inventory.model_validate({"observedAt": "2026-03-04T12:00:00Z", "source": "a test", "nodes": nodes,
                                     "cluster": {"address": "http://192.0.2.1:8265"}, "replicas": list(replicas),
                                     **more})


def created(action: Action, fleet: str = "lab") -> Replica:
    """The replica of an action as the inventory shows it."""
    members = [{**member.model_dump(by_alias=True, exclude={"node"})} for member in action.members]
    return Replica.model_validate({"model": action.model, "replicaId": action.replica_id, "fleet": fleet,
                                   "specHash": action.spec_hash, "members": members})


def recorded_by(plan: Plan, job: str = "fleetctl-apply-1") -> dict[SpecOf, Recorded]:
    """The models recorded in the log of the plan's apply."""
    line = json.dumps({"seq": 2, "type": "planAccepted", **apply_record(plan)}, separators=(",", ":"))
    return {(one.model.key, one.model.spec_hash): one for one in recorded_in(line + "\n", job)}


def applied(text: str) -> tuple[Inventory, dict[SpecOf, Recorded]]:
    """Plan a fleet file on empty nodes; return the inventory after the apply and the models recorded in its log."""
    plan = plan_of(text, inventory_of())
    return inventory_of(*(created(action) for action in plan.actions)), recorded_by(plan)


def as_text(fleet: dict[str, Any]) -> str:
    """A fleet file; JSON is valid YAML, and its quotes keep text from being read as numbers."""
    return json.dumps(fleet)


@st.composite
def any_inventory(draw: st.DrawFn) -> Inventory:
    """Any inventory: replicas of any state, fleet and shape, on alive, dead or unknown nodes."""
    members = st.lists(st.fixed_dictionaries({
        "nodeId": st.sampled_from(["id-a", "id-b", "id-c", "id-gone", None]),
        "gpus": st.sampled_from([0, 2_500, 20_000]), "vram": st.sampled_from([0, 3 << 30]),
        "cpus": st.sampled_from([0, 10_000]), "rank": st.integers(0, 2), "copy": st.integers(0, 1),
        "group": st.sampled_from(["main", "other", None, "No Label"]),
        "role": st.sampled_from(["Standalone", "Leader", "Worker"])}), max_size=4)
    found = draw(st.lists(st.fixed_dictionaries({
        "model": st.sampled_from(["m", "org/m:1", "x y"]), "replicaId": st.integers(0, 9),
        "fleet": st.sampled_from(["lab", "lab", "lab", "theirs", None]), "specHash": st.sampled_from(["a", "b", None]),
        "state": st.sampled_from(["ALIVE", "ALIVE", "PENDING_CREATION", "RESTARTING", "DEAD"]),
        "level": st.sampled_from(["HOT", "HOT", "WARM"]), "members": members,
    }), min_size=1, max_size=8, unique_by=lambda one: (one["model"], one["replicaId"])))
    return inventory_of(*found, dead=draw(st.sampled_from([(), ("b",), ("b", "c")])))
