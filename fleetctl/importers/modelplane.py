"""Imports ModelDeployments as models: engines become worker groups, members stay members, command lines are kept.

Of the device requests of a member, GPUs become claims, and everything else is reported and kept as a comment. Three
forms of CEL conditions are recognized, joined by `&&`: the driver, a minimum of memory, a product by its full name.
Nothing is approximated: any other condition is kept in the author's words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import PydanticCustomError

from fleetctl.documents.quantity import parse_bytes
from fleetctl.documents.selector import ACCELERATOR_LABEL
from fleetctl.fleetfile.guess import dns_label_meant
from fleetctl.importers.container import show_cards
from fleetctl.importers.draft import Draft, bytes_text, filled
from fleetctl.importers.hardware import POOL_LABEL
from fleetctl.importers.objects import accelerator_of_product, engine_of_pod, read_metadata, selector
from fleetctl.importers.reading import Reading

VARIABLES = {"MODELPLANE_LEADER_ADDRESS": "FLEETCTL_LEADER_ADDRESS", "MODELPLANE_RANK": "FLEETCTL_RANK"}
CACHE_MOUNT = "/mnt/models"
PORT = 8000
"""The port on which Modelplane calls every engine."""
_ROLES = ("Standalone", "Leader", "Worker")


def read_deployment(reading: Reading, key: str, draft: Draft) -> None:
    """Add the model of one ModelDeployment to the draft; a deployment without engines is reported and left out."""
    reading.goes_to(key)
    labels = read_metadata(reading, key)
    spec = template = reading.child("spec")
    if "template" in spec:  # before July 2026 the spec itself describes the engines
        spec.child("template").child("metadata").lose_rest("a replica has no labels of its own")
        template = spec.child("template").child("spec")
    engines = "engines" if "engines" in template or "workers" not in template else "workers"
    selected = selector(template.child("clusterSelector"), "matchLabels")
    cache = template.child("modelCacheRef").text("name")
    if cache is not None:
        template.child("modelCacheRef").note(
            None, f"the cache {cache} was mounted at {CACHE_MOUNT}: every node must have the weights there", "todo")
    workers: list[dict[str, Any]] = []
    for engine in template.items(engines):  # before June 2026: workers
        group = _group(engine.goes_to(key, ("workers", len(workers))), len(workers), selected, cached=cache is not None)
        workers += [group] if group else []
    _report_misplaced(reading, template, engines)
    if not workers:
        reading.lose(None, f"no engine with members: the model {key} is left out")
        return
    _report_rest(template, engines, workers)
    replicas = spec.whole("replicas")
    if replicas is None or replicas < 0:
        spec.note("replicas", "not a valid number of replicas: 0 is used, so nothing is started", "todo")
        replicas = 0
    placement = {}
    if any(len(group["members"]) > 1 for group in workers):
        template.note(engines, f"Modelplane keeps a gang in one node pool: the Ray nodes must have {POOL_LABEL}, "
                               "with one value per pool", "todo")
        placement = {"sameLabel": POOL_LABEL}
    draft.add({"key": key, "replicas": replicas, "labels": labels, "placement": placement, "workers": workers},
              reading.place)


def _report_misplaced(reading: Reading, template: Reading, engines: str) -> None:
    """Report a field that is at another level than Modelplane's, with the place where it belongs."""
    spec, groups = reading.child("spec"), template.items(engines)
    members = [member for group in groups for member in group.items("members")]
    where = "spec" if template.path == spec.path else "spec.template.spec"
    for owner in (reading, reading.child("metadata"), spec, spec.child("template"), *groups, *members):
        if owner.path != template.path:
            for key in ("clusterSelector", "modelCacheRef", "serving", "tolerations", "engines", "workers"):
                owner.lose(key, f"not read here: it belongs in {where}")
    for owner in (spec, template, *groups):
        owner.lose("nodeSelector", "not read here: it belongs in each of the members")


def _group(source: Reading, index: int, selected: dict[str, str], *, cached: bool) -> dict[str, Any] | None:
    model, home = source.record.homes[source.path]
    members = [_member(member.goes_to(model, (*home, "members", number)), selected, cached=cached)
               for number, member in enumerate(source.items("members"))]
    if not members:
        return None
    source.lose("phase", "a group has no phase: the callers of the engines must know which is which")
    for number, member in enumerate(members):
        if "resources" not in member and member.get("role") == "Leader":
            source.items("members")[number].note(
                None, "this Leader claims no device: in Modelplane it shares a node with a Worker, here it gets a node "
                      "of its own; claim cpus for it, or allow sharing with placement.ranksPerNode", "todo")
    name = source.text("name") or ""
    meant = dns_label_meant(name) or f"group-{index}"
    if meant != name:
        source.note("name", f"{name!r} is not a DNS label, so the group is named {meant}", "changed")
    return filled({"name": meant, "copies": source.whole("copies" if "copies" in source else "replicas"),
                   "members": members})


def _member(source: Reading, selected: dict[str, str], *, cached: bool) -> dict[str, Any]:
    role = source.text("role") or "Standalone"
    if role not in _ROLES:
        source.note("role", f"unknown role {role}", "todo")
    source.leads_to("nodeSelector", "resources")
    resources, selected_types = claim(source)
    nodes, number = (source, "count") if "worker" not in source else (source.child("worker"), "nodes")
    if role != "Worker":
        for key in ("worker", "count"):
            source.lose(key, "only a Worker has a number of nodes")
    engine = _engine(source.child("template"), role, cached=cached)
    if "gpus" in resources:
        show_cards(engine)
    return filled({
        "role": role if role != "Standalone" else None,
        "count": nodes.count(number, "nodes", least=1) if role == "Worker" else None,
        "resources": resources, "nodeSelector": {**selected, **selected_types},
        "engine": engine,
    })


def _engine(pod: Reading, role: str, *, cached: bool) -> dict[str, Any]:
    container, found = engine_of_pod(pod, VARIABLES, probes_readiness=role != "Worker")
    named = any(str(arg).split("=")[0] == "--model" for arg in found.get("args", ()))
    if cached and "command" not in container and not named:
        container.note("args", f"--model={CACHE_MOUNT} is added to the args, as in Modelplane", "changed")
        found["args"] = [*found.get("args", []), f"--model={CACHE_MOUNT}"]
    if role == "Worker":
        return found
    # Modelplane's requirements for a serving engine: listen on one port, and report readiness there
    probed = ""
    if "readiness" not in found:
        found["readiness"] = {"http": {"path": "/health", "port": PORT}, "timeout": "5s"}
        probed = " and probes GET /health there, which is written as readiness"
    container.note("readinessProbe", f"Modelplane calls every engine on port {PORT}{probed}; members on one node share "
                                     "its ports: give the engine $(FLEETCTL_PORT), and readiness no port", "todo")
    return found


def _report_rest(template: Reading, engines: str, workers: list[dict[str, Any]]) -> None:
    serving = template.child("serving")
    mode = serving.text("mode")
    if mode == "PrefillDecode":
        serving.note("mode", "Modelplane adds a proxy before the pair, a sidecar and NIXL settings to the decode "
                             "engine, and moves that engine to port 8001: none of it is added here", "lost")
    elif mode not in (None, "Unified"):
        serving.note("mode", f"unknown mode {mode}", "lost")
    template.lose("tolerations", "nodes have no taints here; spec.nodes can cordon some of them for all models")
    if len(workers) > 1:
        template.note(engines, "Modelplane keeps all engines of a replica on one cluster: here each group is placed "
                               "by itself", "lost")


_TOKEN = re.compile(r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|&&|\|\||//|.""", re.DOTALL)
_TEXT = r"""(?:"[^"\\]*"|'[^'\\]*')"""
_MEMORY = rf"device\.capacity\[{_TEXT}\]\.memory"
_PRODUCT = rf"device\.attributes\[{_TEXT}\]\.productName"
_DOMAIN = re.compile(rf"\bdevice\.(?:capacity|attributes)\[({_TEXT})\]")
_DRIVER_IS = re.compile(rf"device\.driver\s*==\s*({_TEXT})")
_MEMORY_IS = re.compile(rf"{_MEMORY}\.compareTo\(quantity\(({_TEXT})\)\)\s*(>=?)\s*0"
                        rf"|!{_MEMORY}\.isLessThan\(quantity\(({_TEXT})\)\)"
                        rf"|{_MEMORY}\.isGreaterThan\(quantity\(({_TEXT})\)\)")
_PRODUCT_IS = re.compile(rf"{_PRODUCT}\s*(?:==\s*{_TEXT}|in\s*\[\s*{_TEXT}(?:\s*,\s*{_TEXT})*\s*\])")
_ALWAYS_TRUE = re.compile(rf"""true|device\.attributes\[{_TEXT}\]\.type\s*==\s*["']gpu["']""")
"""True for every whole card."""


def claim(member: Reading) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the resources and the nodeSelector for the device requests of a member.

    Several requests for GPUs become one, as strict as the strictest.
    """
    gpus = [(request, wanted) for request in member.child("nodeSelector").items("devices")
            if (wanted := _gpu_request(request)) is not None]
    if not gpus:
        return {}, {}
    resources: dict[str, Any] = {"gpus": sum(request.count("count", "devices", least=1) for request, _ in gpus)}
    memories = {wanted.memory for _, wanted in gpus}
    least = max((memory for memory in memories if memory is not None), default=None)
    if least is not None:
        resources["vram"] = bytes_text(least[0]) if least[1].isdigit() else least[1]
        member.child("nodeSelector").note(
            "devices", f"{resources['vram']} is the size of the card, but vram must be free on it: write the amount "
                       "that the model needs", "todo")
    if len(gpus) > 1 and (len(memories) > 1 or len({wanted.types for _, wanted in gpus}) > 1):
        gpus[-1][0].note(None, "two kinds of GPUs in one member become one kind, which meets the strictest request",
                         "lost")
    types: dict[str, str] = {}
    for request, wanted in gpus:
        types |= _type_selector(request, wanted)
    return resources, types


def _gpu_request(request: Reading) -> Wanted | None:
    """Read one request; return the requirements for its GPUs, or None, reported, if it is not for GPUs."""
    name = request.text("name")
    wanted = Wanted()
    for condition in request.items("selectors"):
        cel = condition.text("cel")
        if cel is not None:
            read_selector(cel, wanted)
    if "selectors" not in request and re.fullmatch("gpus?", name or ""):  # before June 2026 a driver was not required
        request.note(None, "no driver is named: taken as GPUs because of its name", "todo")
        wanted.drivers.add("gpu.")
    if not wanted.is_gpu:
        expressions = [" ".join(str(selector.peek("cel")).split()) for selector in request.items("selectors")]
        conditions = f": {' && '.join(expressions)}" if expressions else ""
        what = f"{request.count('count', 'devices', least=1)} x {name or 'a device'}"
        why = "no driver is named, so the device is unknown" if wanted.is_gpu is None else "only GPUs can be claimed"
        request.lose(None, f"{what}: {why}{conditions}")
        return None
    for kept in wanted.kept:
        request.note("selectors", f"no counterpart: {kept}", "lost")
    return wanted


def _type_selector(request: Reading, wanted: Wanted) -> dict[str, str]:
    if wanted.types is None:
        return {}
    types = sorted(wanted.types)
    if not types:
        request.note("selectors", "one card cannot be two products at once", "todo")
        return {}
    written = types[0] if len(types) == 1 else f"in({', '.join(types)})"
    products = ", ".join(dict.fromkeys(wanted.products))
    request.note("selectors", f"{products}: kept only as {ACCELERATOR_LABEL}: {written}", "lost")
    return {ACCELERATOR_LABEL: written}


@dataclass(slots=True)
class Wanted:
    """The combined requirements of the selectors of one device request.

    `drivers` = all drivers named, by equality or as a domain; `memory` = the minimum in bytes, and as written;
    `types` = Ray's accelerator types, None = any; `products` = the full names these came from; `kept` = conditions
    without a counterpart, in the author's words.
    """

    drivers: set[str] = field(default_factory=set)
    memory: tuple[int, str] | None = None
    types: frozenset[str] | None = None
    products: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)

    @property
    def is_gpu(self) -> bool | None:
        """Whether the device is a GPU, judged by its driver's name (`gpu.nvidia.com`); None = no driver is named."""
        return all(driver.startswith("gpu.") for driver in self.drivers) if self.drivers else None


def read_selector(cel: str, wanted: Wanted) -> None:
    """Add the requirements of one selector."""
    wanted.drivers.update(text[1:-1] for text in _DOMAIN.findall(cel))
    for part in _conjuncts(cel):
        if driver := _DRIVER_IS.fullmatch(part):
            wanted.drivers.add(driver[1][1:-1])
        elif not (_memory(part, wanted) or _product(part, wanted) or _ALWAYS_TRUE.fullmatch(part)):
            wanted.kept.append(" ".join(part.split()))


def _conjuncts(cel: str) -> list[str]:
    """Return the parts of `a && b && ...`; the whole text if `||`, `?` or a comment could change their meaning."""
    parts, depth = [""], 0
    for word in _TOKEN.findall(cel):
        depth += (word in "([{") - (word in ")]}")
        if word == "//" or (depth == 0 and word in ("||", "?")):
            return [cel.strip()]
        if word == "&&" and depth == 0:
            parts.append("")
        else:
            parts[-1] += word
    return [part.strip() for part in parts]


def _memory(part: str, wanted: Wanted) -> bool:
    """Read a lower bound of the card's memory; an exclusive bound becomes one byte more."""
    found = _MEMORY_IS.fullmatch(part)
    if found is None:
        return False
    written = (found[1] or found[3] or found[4])[1:-1]
    is_more = found[2] == ">" or found[4] is not None
    try:
        least = parse_bytes(written) + is_more
    except PydanticCustomError:
        return False
    if wanted.memory is None or least > wanted.memory[0]:
        wanted.memory = (least, str(least) if is_more else written)
    return True


def _product(part: str, wanted: Wanted) -> bool:
    if not _PRODUCT_IS.fullmatch(part):
        return False
    names = [text[1:-1] for text in re.findall(_TEXT, part)][1:]
    types = {accelerator_of_product(name) for name in names}
    if None in types:
        return False
    known = frozenset(str(name) for name in types)
    wanted.types = known if wanted.types is None else wanted.types & known
    wanted.products += names
    return True
