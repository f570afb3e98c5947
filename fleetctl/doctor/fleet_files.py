"""Fleet: its files have no problem."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from fleetctl.doctor.evidence import Evidence
from fleetctl.documents.diagnosis import Diagnosed


def check(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield what `validate` finds, with its codes."""
    for problem in evidence.loaded.problems if evidence.loaded else ():
        yield Diagnosed(
            code=problem.code, severity=problem.severity, area="fleet",
            subject=f"{problem.file}:{problem.line}:{problem.column}", message=problem.message,
            advice=f"allowed: {problem.allowed}" if problem.allowed else "",
            command=f"fleetctl validate -f {shlex.quote(problem.file)}" if problem.file != "-" else None)
