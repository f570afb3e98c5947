"""`fleetctl doctor`: problems in client, cluster, nodes, replicas and fleet, and what to do about each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated

import typer

from fleetctl.apply.node_jobs import REPAIR, JobRunner, Leftovers, examine, repair
from fleetctl.cli import flags
from fleetctl.cli.commands import command_app
from fleetctl.cli.console import say
from fleetctl.cli.process import read_stdin, this_invocation
from fleetctl.cli.reporting import show_answer
from fleetctl.cli.verb import new_job_id, perform, starter
from fleetctl.doctor.cluster import leaked
from fleetctl.doctor.diagnose import diagnose
from fleetctl.doctor.evidence import Evidence
from fleetctl.doctor.fleet import needs_by_node
from fleetctl.doctor.nodes import engine_of
from fleetctl.documents.base import as_datetime
from fleetctl.documents.diagnosis import Repaired
from fleetctl.documents.quantity import count_of
from fleetctl.errors import FleetctlError
from fleetctl.fleetfile.load import LoadedFleet, inspect_fleet
from fleetctl.inventory.cold import with_wrong
from fleetctl.inventory.dashboard import Live
from fleetctl.inventory.vitals import read_vitals
from fleetctl.render.report.of_diagnosis import diagnosis_report
from fleetctl.workflow.cluster import cluster_of, read
from fleetctl.workflow.dashboard import live_source
from fleetctl.workflow.invocation import Invocation, Where

app = command_app(
    "fleetctl doctor",
    "fleetctl doctor -f fleets/prod.yaml --nodes   # also examines every node",
    "fleetctl doctor --nodes --fix",
    exit_codes="0 no error found (warnings allowed), 1 an error was found, or the cluster could not be read, 64 usage")


@app.command()
def doctor(
    *,
    files: flags.OptionalFiles = None,
    where: flags.Cluster,
    nodes: Annotated[bool, typer.Option(
        "--nodes", help="Also run a read-only job that examines every node; it claims no resources.")] = False,
    fix: Annotated[bool, typer.Option(
        "--fix", help="Remove dead leftovers of fleetctl, after listing them and asking.")] = False,
    yes: flags.Yes = False,
    output_format: flags.Format = "table",
) -> int:
    """Find problems in client, cluster and fleet, and how to fix them.

    Without --nodes and --fix it sends only GETs. With -f it also checks the files; with -f and --nodes also whether
    each node that may run an engine has its command, its `fromNode` variables, its folder and its ports. --fix ends no
    replica: it removes placement groups, engine processes and locks that belong to no replica and no run anymore.
    """
    invocation = this_invocation()
    loaded = inspect_fleet(files, stdin=read_stdin) if files else None
    with ExitStack() as opened:
        examination = Examination(invocation, where, loaded, opened)
        evidence = examination.evidence(new_job_id("examine") if nodes else None)
        diagnosis = diagnose(evidence)
        if fix and (repaired := _repaired(examination, evidence, yes=yes)):
            diagnosis = diagnose(examination.evidence(new_job_id("examine") if nodes else None), repaired)
    show_answer(diagnosis, output_format, diagnosis_report)
    if left := [leftover for leftover in diagnosis.repaired if not leftover.done]:
        say("warning", f"{count_of(len(left), 'leftover')} could not be removed")
    return diagnosis.exit_code


@dataclass
class Examination:
    """One run of the doctor on a cluster and a fleet; `opened` closes the connections to the cluster."""

    invocation: Invocation
    where: Where
    loaded: LoadedFleet | None
    opened: ExitStack

    def asker(self) -> JobRunner:
        """Return the submitter of jobs to the cluster; raises InventoryError for an unknown cluster."""
        return JobRunner(self._source.client, self._source.namespace, starter())

    def evidence(self, job: str | None) -> Evidence:
        """Read the cluster, and its nodes by the job with this id; None = do not examine the nodes."""
        evidence = Evidence(self.invocation.now(), self.loaded)
        try:
            source = self._source
            with self.invocation.working("reading the cluster"):
                vitals = read_vitals(source.client)
            seen = read(self.invocation, source)
            told, here_s = source.client.cluster_time(), as_datetime(self.invocation.now()).timestamp()
            evidence = replace(evidence, vitals=vitals, seen=with_wrong(source.client, seen), now=source.now(),
                               ahead_s=None if told is None else here_s - told)
        except FleetctlError as error:
            return replace(evidence, refusal=error)
        return self._with_nodes(evidence, job) if job else evidence

    @cached_property
    def _source(self) -> Live:
        fleet = self.loaded.fleet if self.loaded else None
        return self.opened.enter_context(live_source(self.invocation, self.where, cluster_of(fleet)))

    def _with_nodes(self, evidence: Evidence, job: str) -> Evidence:
        needs = needs_by_node(evidence.fleet, evidence.inventory.nodes)
        if not needs:
            return evidence
        self.invocation.say("note", f"examining {count_of(len(needs), 'node')}; this takes some seconds")
        try:
            with self.invocation.working("examining the nodes"):
                nodes, locks, silent = examine(self.asker(), job, needs)
        except FleetctlError as error:
            return replace(evidence, unasked=error)
        return replace(evidence, nodes=nodes, locks=locks, autoscaler=silent)


def _repaired(examination: Examination, evidence: Evidence, *, yes: bool) -> list[Repaired]:
    """List dead leftovers, ask, and remove them; returns the result for each, nothing without a yes."""
    if evidence.seen is None:
        return []
    orphans = {node_id: own for node_id, node in (evidence.nodes or {}).items()
               if (own := [process for process in node.orphans if not process.container])}
    dead = Leftovers(leaked(evidence), orphans, evidence.locks)
    if not dead:
        say("note", "there is nothing for --fix to remove")
        return []
    repaired = list[Repaired]()

    def remove() -> int:
        repaired.extend(repair(examination.asker(), new_job_id(REPAIR), dead))
        for leftover in repaired:
            if leftover.done:
                say("removed", leftover.subject)
            else:
                say("warning", f"{leftover.subject} was not removed: {leftover.message}")
        return 0

    listed = list(_listed(dead, {node.id: node.name for node in evidence.seen.nodes}))
    perform(remove, f"Remove {'it' if len(listed) == 1 else f'these {len(listed)}'}?", yes=yes,
            shown=[("remove", line) for line in listed], otherwise="nothing was removed")
    return repaired


def _listed(dead: Leftovers, names: dict[str, str]) -> Iterator[str]:
    yield from (f"placement group {group.name}" for group in dead.groups)
    for node_id, processes in dead.orphans.items():
        for process in processes:
            yield f"process {process.pid} on {names.get(node_id, node_id)} ({process.command}), {engine_of(process)}"
    yield from (f"lock of fleet {lock.fleet}, left by {lock.job or 'an unknown run'}" for lock in dead.locks)
