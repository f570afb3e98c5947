"""The needs of a fleet's engines on each node that may run them: what `--nodes` examines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from fleetctl.documents.diagnosis import Need
from fleetctl.documents.fleet import Engine, FromNode, Member
from fleetctl.documents.inventory import Node
from fleetctl.fleetfile.resolved import ResolvedFleet, ResolvedModel
from fleetctl.planner.breaker import may_take
from fleetctl.planner.notes import policy_of


def candidates(fleet: ResolvedFleet, member: Member, nodes: Iterable[Node]) -> list[Node]:
    """Return the nodes that may run a member when empty, judged by state, cordon, labels and number of cards."""
    return [node for node in nodes
            if may_take(node, member) and policy_of(node, fleet.policies).cordoned_by is None]


def members_of(fleet: ResolvedFleet) -> Iterator[tuple[ResolvedModel, Member]]:
    """Yield every member of every model with a target above 0."""
    for model in fleet.models:
        for group in model.workers if model.replicas else ():
            for member in group.members:
                yield model, member


def needs_of(engine: Engine) -> list[Need]:
    """Return an engine's needs on its node. A command with a `$(...)` reference is unknown before the start."""
    path, needs = engine.env.get("PATH"), list[Need]()
    if "$(" not in engine.command[0]:
        needs.append(Need("command", engine.command[0], path if isinstance(path, str) else None))
    needs += [Need("variable", value.from_node) for value in engine.env.values() if isinstance(value, FromNode)]
    if engine.workdir:
        needs.append(Need("workdir", engine.workdir))
    for probe in filter(None, (engine.readiness, engine.liveness)):
        target = probe.http or probe.tcp
        if target and target.port:
            needs.append(Need("port", str(target.port)))
    return list(dict.fromkeys(needs))


def needs_by_node(fleet: ResolvedFleet | None, nodes: Sequence[Node]) -> Mapping[str, list[Need]]:
    """Return the needs to check on every live node, by node id; without a fleet the lists are empty."""
    needs: defaultdict[str, dict[Need, None]] = defaultdict(dict)
    for _, member in members_of(fleet) if fleet else ():
        for node in candidates(fleet, member, nodes) if fleet else ():
            needs[node.id] |= dict.fromkeys(needs_of(member.engine))
    return {node.id: list(needs[node.id]) for node in nodes if node.state == "ALIVE"}
