"""Checks of the fleet files, and of the nodes that may run their engines, before anything is placed.

What the engines need on each of these nodes is what `--nodes` examines.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from fleetctl.doctor.evidence import Evidence
from fleetctl.documents.diagnosis import Diagnosed, Need
from fleetctl.documents.engine import Engine, FromNode
from fleetctl.documents.fleet import Member
from fleetctl.documents.inventory import LIVE_STATES, Node
from fleetctl.fleetfile.command_line import find_container
from fleetctl.fleetfile.resolved import ResolvedFleet, ResolvedModel
from fleetctl.planner.breaker import may_take
from fleetctl.planner.placement.ledger.ledger import LedgerNode
from fleetctl.planner.placement.policies import policy_of
from fleetctl.sizing.groups import first_member


def check_files(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield the problems that `validate` finds, with their codes."""
    for problem in evidence.loaded.problems if evidence.loaded else ():
        yield Diagnosed(
            code=problem.code, severity=problem.severity, area="fleet",
            subject=f"{problem.file}:{problem.line}:{problem.column}", message=problem.message,
            advice=f"allowed: {problem.allowed}" if problem.allowed else "",
            command=f"fleetctl validate -f {shlex.quote(problem.file)}" if problem.file != "-" else None)


ADVICE = {
    "command": "install it there, write its full path in engine.command, or set PATH in engine.env; or keep the model "
               "off these nodes with nodeSelector",
    "variable": "set it in the environment of `ray start` on these nodes, and restart Ray there",
    "workdir": "create it there, or leave engine.workdir out for a fresh folder",
    "port": "give each engine its own with $(FLEETCTL_PORT)",
    "image": "pull it there as Ray's user, or keep the model off these nodes with nodeSelector; an apply that meets "
             "such a node plans its replica elsewhere",
}
RUNS_LARGE = ("give it more cards or a shorter context; if it serves well, it is described wrongly: describe it again "
              "with `fleetctl model describe`")
NAMED = 5
OTHER_STORE = frozenset({"HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "CONTAINERS_STORAGE_CONF", "CONTAINER_HOST",
                         "DOCKER_HOST", "DOCKER_CONTEXT"})
"""Variables with which a container runtime looks for images elsewhere."""


def check_engines(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield each unmet need of a model once, with the nodes that do not meet it."""
    fleet, reported = evidence.fleet, set[tuple[str, str, str]]()
    if fleet is None:
        return
    examined = {node_id: node for node_id, node in (evidence.nodes or {}).items() if not node.trouble}
    for model, member in members_of(fleet):
        nodes = [node for node in candidates(fleet, member, evidence.inventory.nodes) if node.id in examined]
        for need in needs_of(member.engine):
            unmet_needs = [(node, unmet) for node in nodes for unmet in examined[node.id].unmet
                     if (unmet.kind, unmet.value, unmet.path) == need]
            for code in dict.fromkeys(unmet.code for _, unmet in unmet_needs):
                if (model.key, code, need.value) not in reported:
                    reported.add((model.key, code, need.value))
                    lacking = [(node, unmet) for node, unmet in unmet_needs if unmet.code == code]
                    names, unmet = [node.name for node, _ in lacking], lacking[0][1]
                    listed = f"{', '.join(names[:NAMED])}{', ...' if len(names) > NAMED else ''}"
                    yield Diagnosed(
                        code=code, severity="warning" if unmet.kind == "port" else "error", area="fleet",
                        subject=model.key, advice=ADVICE[unmet.kind],
                        message=f"{unmet.message}, on {listed} ({len(names)} of {len(nodes)} nodes that may run it)")


def check_memory(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield the described models that may not fit on the cards on which they run, or on any on which they may run."""
    fleet, seen = evidence.fleet, evidence.inventory
    if fleet is None or not any(model.description for model in fleet.models):
        return
    from fleetctl.planner.placement.memory import (  # for models that are described
        GroupOf,
        fit_of,
        kinds_of_cards,
        memory_notes,
    )

    nodes = [LedgerNode.of(node, policy_of(node, fleet.policies)) for node in seen.nodes]
    kinds, running = kinds_of_cards(nodes), defaultdict[GroupOf, set[str]](set)
    models = {model.key: model for model in fleet.models}
    for replica in seen.replicas:
        if (replica.fleet == fleet.name and replica.level == "HOT" and replica.state in LIVE_STATES
                and replica.model in models and models[replica.model].has_spec(replica.spec_hash)):
            variant = next(one.variant for one in models[replica.model].alternatives if one.has_spec(replica.spec_hash))
            for member in replica.members:
                if member.gpus or member.vram:
                    running[replica.model, variant, member.group or ""].add(member.node_id or "")
    for note in memory_notes(fleet.models, running, nodes):
        yield Diagnosed(code=note.code, severity="warning", area="fleet", subject=note.model or "",
                        message=f"it runs {note.message}", advice=RUNS_LARGE)
    idle = [(one, group) for model in fleet.models for one in model.alternatives for group in one.workers
            if one.description and model.is_wanted and (one.key, one.variant, group.name) not in running]
    for model, group in idle:
        may = candidates(fleet, first_member(group), seen.nodes)
        fits = [fit_of(model, group, kinds[node.id], kinds.values()) for node in may if node.id in kinds]
        large = [fit for fit in fits if fit is not None and fit.kind != "fits"]
        if large and len(large) == len(may):
            best = max(large, key=lambda fit: (fit.kind != "certain", fit.need.limit or 0))
            blocks = best.kind == "certain" and model.blocks_too_large
            of = f"variant {model.variant}: " if model.variant else ""
            of += f"group {group.name}: " if len(model.workers) > 1 else ""
            yield Diagnosed(code="MODEL_TOO_LARGE" if blocks else "MODEL_MAY_NOT_FIT", area="fleet", subject=model.key,
                            severity="error" if blocks else "warning", message=f"{of}{best.text}",
                            advice=best.remedy or "give it more cards, or nodes with larger ones")


def candidates(fleet: ResolvedFleet, member: Member, nodes: Iterable[Node]) -> list[Node]:
    """Return the nodes that may run a member when empty, judged by state, cordon, labels and number of cards."""
    return [node for node in nodes
            if may_take(node, member) and policy_of(node, fleet.policies).cordoned_by is None]


def members_of(fleet: ResolvedFleet) -> Iterator[tuple[ResolvedModel, Member]]:
    """Yield every member of every model of which the file wants replicas."""
    for model in fleet.models:
        for group in (group for one in model.alternatives for group in one.workers) if model.is_wanted else ():
            for member in group.members:
                yield model, member


def needs_of(engine: Engine) -> list[Need]:
    """Return an engine's needs on its node.

    A command with a `$(...)` reference is unknown before the start, or one on a PATH with another one than `$(PATH)`.
    """
    own, needs = engine.env.get("PATH"), list[Need]()
    path = own if isinstance(own, str) else None
    if "$(" not in engine.command[0] + (path or "").replace("$(PATH)", ""):
        needs.append(Need("command", engine.command[0], path))
    container = find_container([*engine.command, *engine.args])
    if container and container.image_on_node and OTHER_STORE.isdisjoint(engine.env):
        needs.append(Need("image", container.image_on_node, container.runtime))
    needs += [Need("variable", value.from_node) for value in engine.env.values() if isinstance(value, FromNode)]
    if engine.workdir:
        needs.append(Need("workdir", engine.workdir))
    for probe in filter(None, (engine.readiness, engine.liveness)):
        if probe.port:
            needs.append(Need("port", str(probe.port)))
    return list(dict.fromkeys(needs))


def needs_by_node(fleet: ResolvedFleet | None, nodes: Sequence[Node]) -> Mapping[str, list[Need]]:
    """Return the needs to check on every live node, by node id; without a fleet the lists are empty."""
    needs: defaultdict[str, dict[Need, None]] = defaultdict(dict)
    for _, member in members_of(fleet) if fleet else ():
        for node in candidates(fleet, member, nodes) if fleet else ():
            needs[node.id] |= dict.fromkeys(needs_of(member.engine))
    return {node.id: list(needs[node.id]) for node in nodes if node.state == "ALIVE"}
