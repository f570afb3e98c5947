"""Imports ModelDeployments as models: engines become worker groups, members stay members, command lines are kept."""

from __future__ import annotations

from typing import Any

from fleetctl.fleetfile.guess import dns_label_meant
from fleetctl.importers.draft import Draft, filled
from fleetctl.importers.kubernetes.labels import selector
from fleetctl.importers.kubernetes.objects import read_metadata
from fleetctl.importers.kubernetes.pod import engine_of_pod
from fleetctl.importers.modelplane.devices import claim
from fleetctl.importers.modelplane.hardware import POOL_LABEL
from fleetctl.importers.reading import Reading

VARIABLES = {"MODELPLANE_LEADER_ADDRESS": "FLEETCTL_LEADER_ADDRESS", "MODELPLANE_RANK": "FLEETCTL_RANK"}
CACHE_MOUNT = "/mnt/models"
PORT = 8000
"""The port on which Modelplane calls every engine."""
_ROLES = ("Standalone", "Leader", "Worker")


def read_deployment(reading: Reading, key: str, draft: Draft) -> None:
    """Add the model of one ModelDeployment to the draft; a deployment without engines is reported and left out."""
    reading.goes_to(key)
    read_metadata(reading, key)
    spec = reading.child("spec")
    template = _template(spec)
    selected = selector(template.child("clusterSelector"), "matchLabels")
    cache = template.child("modelCacheRef").text("name")
    if cache is not None:
        template.child("modelCacheRef").note(
            None, f"the cache {cache} was mounted at {CACHE_MOUNT}: every node must have the weights there", "todo")
    workers: list[dict[str, Any]] = []
    for one in template.items("engines"):
        group = _group(one.goes_to(key, ("workers", len(workers))), len(workers), selected, cached=cache is not None)
        workers += [group] if group else []
    if not workers:
        reading.lose(None, f"no engine with members: the model {key} is left out")
        return
    _report_rest(template, workers)
    draft.add({"key": key, "replicas": _replicas(spec), "placement": _placement(template, workers),
               "workers": workers}, reading.place)


def _template(spec: Reading) -> Reading:
    """Return the part that describes the engines: `template.spec`, or before July 2026 the spec itself."""
    if "template" not in spec:
        return spec
    template = spec.child("template")
    template.child("metadata").lose_rest("a replica has no labels of its own")
    return template.child("spec")


def _replicas(spec: Reading) -> int:
    replicas = spec.whole("replicas")
    if replicas is None or replicas < 0:
        spec.note("replicas", "not a valid number of replicas: 0 is used, so nothing is started", "todo")
        return 0
    return replicas


def _group(source: Reading, index: int, selected: dict[str, str], *, cached: bool) -> dict[str, Any] | None:
    model, home = source.record.homes[source.path]
    members = [_member(one.goes_to(model, (*home, "members", number)), selected, cached=cached)
               for number, one in enumerate(source.items("members"))]
    if not members:
        return None
    source.lose("phase", "a group has no phase: the callers of the engines must know which is which")
    _report_claimless_leader(source, members)
    return filled({"name": _group_name(source, index), "copies": source.whole("copies"), "members": members})


def _group_name(source: Reading, index: int) -> str:
    name = source.text("name") or ""
    meant = dns_label_meant(name) or f"group-{index}"
    if meant != name:
        source.note("name", f"{name!r} is not a DNS label, so the group is named {meant}", "changed")
    return meant


def _member(source: Reading, selected: dict[str, str], *, cached: bool) -> dict[str, Any]:
    role = source.text("role") or "Standalone"
    if role not in _ROLES:
        source.note("role", f"unknown role {role}", "todo")
    source.leads_to("nodeSelector", "resources")
    resources, selected_types = claim(source)
    if role != "Worker":
        source.lose("worker", "only a Worker has a number of nodes")
    return filled({
        "role": role if role != "Standalone" else None,
        "count": source.child("worker").count("nodes", "nodes", least=1) if role == "Worker" else None,
        "resources": resources, "nodeSelector": {**selected, **selected_types},
        "engine": _engine(source.child("template"), role, cached=cached),
    })


def _engine(pod: Reading, role: str, *, cached: bool) -> dict[str, Any]:
    container, found = engine_of_pod(pod, VARIABLES, probes_readiness=role != "Worker")
    named = any(str(arg).split("=")[0] == "--model" for arg in found.get("args", ()))
    if cached and "command" not in container and not named:
        container.note("args", f"--model={CACHE_MOUNT} is added to the args, as in Modelplane", "changed")
        found["args"] = [*found.get("args", []), f"--model={CACHE_MOUNT}"]
    if role != "Worker":
        _add_contract(container, found)
    return found


def _add_contract(container: Reading, found: dict[str, Any]) -> None:
    """Write Modelplane's requirements for a serving engine: listen on one port, and report readiness there."""
    probed = ""
    if "readiness" not in found:
        found["readiness"] = {"http": {"path": "/health", "port": PORT}, "timeout": "5s"}
        probed = " and probes GET /health there, which is written as readiness"
    container.note("readinessProbe", f"Modelplane calls every engine on port {PORT}{probed}; members on one node share "
                                     "its ports: give the engine $(FLEETCTL_PORT), and readiness no port", "todo")


def _report_claimless_leader(source: Reading, members: list[dict[str, Any]]) -> None:
    for number, member in enumerate(members):
        if "resources" not in member and member.get("role") == "Leader":
            source.items("members")[number].note(
                None, "this Leader claims no device: in Modelplane it shares a node with a Worker, here it gets a node "
                      "of its own; claim cpus for it, or allow sharing with placement.ranksPerNode", "todo")


def _placement(template: Reading, workers: list[dict[str, Any]]) -> dict[str, Any]:
    """Keep a gang in one node pool, as Modelplane always does."""
    if all(len(group["members"]) == 1 for group in workers):
        return {}
    template.note("engines", f"Modelplane keeps a gang in one node pool: the Ray nodes must have {POOL_LABEL}, with "
                             "one value per pool", "todo")
    return {"sameLabel": POOL_LABEL}


def _report_rest(template: Reading, workers: list[dict[str, Any]]) -> None:
    serving = template.child("serving")
    mode = serving.text("mode")
    if mode == "PrefillDecode":
        serving.note("mode", "Modelplane adds a proxy before the pair, a sidecar and NIXL settings to the decode "
                             "engine, and moves that engine to port 8001: none of it is added here", "lost")
    elif mode not in (None, "Unified"):
        serving.note("mode", f"unknown mode {mode}", "lost")
    template.lose("tolerations", "nodes have no taints here; spec.nodes can cordon some of them for all models")
    if len(workers) > 1:
        template.note("engines", "Modelplane keeps all engines of a replica on one cluster: here each group is placed "
                                 "by itself", "lost")
