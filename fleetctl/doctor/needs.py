"""What the engines of a fleet need on each node that may take them: the questions for --nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from fleetctl.documents.diagnosis import Need
from fleetctl.documents.engine import Engine, FromNode
from fleetctl.documents.fleet import Member
from fleetctl.documents.inventory import Node
from fleetctl.fleetfile.resolved import ResolvedFleet, ResolvedModel
from fleetctl.planner.breaker import may_take
from fleetctl.planner.notes import policy_of


def candidates(fleet: ResolvedFleet, member: Member, nodes: Iterable[Node]) -> list[Node]:
    """Return the nodes that may take a member when they are empty: by state, cordon, labels, and number of cards."""
    return [node for node in nodes
            if may_take(node, member) and policy_of(node, fleet.policies).cordoned_by is None]


def members_of(fleet: ResolvedFleet) -> Iterator[tuple[ResolvedModel, Member]]:
    """Yield every member of a model that wants replicas."""
    for model in fleet.models:
        for group in model.workers if model.replicas else ():
            for member in group.members:
                yield model, member


def needs_of(engine: Engine) -> list[Need]:
    """Return what an engine needs on its node; a command with a reference in it is not known before the start."""
    path, found = engine.env.get("PATH"), list[Need]()
    if "$(" not in engine.command[0]:
        found.append(Need("command", engine.command[0], path if isinstance(path, str) else None))
    found += [Need("variable", value.from_node) for value in engine.env.values() if isinstance(value, FromNode)]
    found += [Need("workdir", engine.workdir)] if engine.workdir else []
    for probe in filter(None, (engine.readiness, engine.liveness)):
        asked = probe.http or probe.tcp
        found += [Need("port", str(asked.port))] if asked and asked.port else []
    return list(dict.fromkeys(found))


def needs_by_node(fleet: ResolvedFleet | None, nodes: Sequence[Node]) -> Mapping[str, list[Need]]:
    """Return the questions for every node that is alive, by its id; without a fleet there are none."""
    needs: defaultdict[str, dict[Need, None]] = defaultdict(dict)
    for _, member in members_of(fleet) if fleet else ():
        for node in candidates(fleet, member, nodes) if fleet else ():
            needs[node.id] |= dict.fromkeys(needs_of(member.engine))
    return {node.id: list(needs[node.id]) for node in nodes if node.state == "ALIVE"}
