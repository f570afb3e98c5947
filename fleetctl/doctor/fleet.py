"""Checks of the fleet files, and of the nodes that may run their engines, before anything is placed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from fleetctl.doctor.evidence import Evidence
from fleetctl.doctor.needs import candidates, members_of, needs_of
from fleetctl.documents.diagnosis import Diagnosed, Unmet
from fleetctl.documents.inventory import Node


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
}
NAMED = 5


def check_engines(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield each unmet need of a model once, with the nodes that do not meet it."""
    fleet, reported = evidence.fleet, set[tuple[str, str, str]]()
    if fleet is None:
        return
    examined = {node_id: node for node_id, node in (evidence.nodes or {}).items() if not node.trouble}
    for model, member in members_of(fleet):
        nodes = [node for node in candidates(fleet, member, evidence.inventory.nodes) if node.id in examined]
        for need in needs_of(member.engine):
            found = [(node, unmet) for node in nodes for unmet in examined[node.id].unmet
                     if (unmet.kind, unmet.value, unmet.path) == need]
            for code in dict.fromkeys(unmet.code for _, unmet in found):
                if (model.key, code, need.value) not in reported:
                    reported.add((model.key, code, need.value))
                    lacking = [(node, unmet) for node, unmet in found if unmet.code == code]
                    yield _finding(model.key, lacking, len(nodes))


def _finding(model: str, lacking: Sequence[tuple[Node, Unmet]], candidates: int) -> Diagnosed:
    names, unmet = [node.name for node, _ in lacking], lacking[0][1]
    listed = f"{', '.join(names[:NAMED])}{', ...' if len(names) > NAMED else ''}"
    return Diagnosed(
        code=unmet.code, severity="warning" if unmet.kind == "port" else "error", area="fleet", subject=model,
        message=f"{unmet.message}, on {listed} ({len(names)} of {candidates} nodes that may run it)",
        advice=ADVICE[unmet.kind])
