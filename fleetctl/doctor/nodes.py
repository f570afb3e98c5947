"""Checks of the nodes: they answer, offer their cards, and nothing keeps new replicas away unnoticed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from fleetctl.doctor.evidence import Evidence
from fleetctl.documents.diagnosis import Diagnosed
from fleetctl.documents.quantity import format_bytes, grouped
from fleetctl.inventory.cards import card_warnings
from fleetctl.inventory.notes import cordon_note, has_ended
from fleetctl.planner.placement.reasons.words import users_text


def check_answers(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield the nodes that did not start a worker when they were asked to."""
    names = {node.id: node.name for node in evidence.inventory.nodes}
    for node_id, node in (evidence.nodes or {}).items():
        if node.trouble:
            name = names.get(node_id, node_id)
            yield Diagnosed(
                code="NODE_SILENT", severity="error", area="node", subject=name, message=node.trouble,
                advice="a replica would not start there either: see raylet.out on that node; keep new ones away",
                command=f"fleetctl cordon {shlex.quote(name)} --reason 'no answer'")


def check_gpu_counts(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield the nodes whose two numbers differ, and the cards that two nodes share."""
    for warning in card_warnings(evidence.alive):
        is_count = not warning.startswith("card ")
        yield Diagnosed(
            code="GPU_COUNT" if is_count else "CARD_SHARED", severity="warning", area="node",
            subject=warning.split()[0 if is_count else 1], message=warning, command="fleetctl inventory",
            advice="start Ray on that node with --num-gpus of its real cards, after a look at the driver: `nvidia-smi`"
            if is_count else "start one Ray node on a machine, or give each its own CUDA_VISIBLE_DEVICES")


def check_foreign_memory(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield each card that the planner leaves out for its memory (CARD_IN_USE)."""
    for node in evidence.inventory.nodes:
        for card in node.gpus:
            if not card.memory_foreign:
                continue
            total = f" of {format_bytes(card.memory_total)}" if card.memory_total else ""
            users = users_text(card)
            who = "end what does not belong there" if users else "`nvidia-smi` on that node lists who uses it"
            yield Diagnosed(
                code="CARD_IN_USE", severity="warning", area="node", subject=f"{node.name} card {card.index}",
                message=f"{format_bytes(card.memory_foreign)}{total} are in use{users}, beyond what Ray has granted on "
                        f"it: nothing new is placed there{f' ({card.uuid})' if card.uuid else ''}",
                advice=f"{who}; --nodes finds an engine that a replica of ours left",
                command="fleetctl doctor --nodes")


def check_orphans(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield each engine without its replica, however many processes it has: Ray hands its cards out again."""
    names = {node.id: node.name for node in evidence.inventory.nodes}
    for node_id, node in (evidence.nodes or {}).items():
        engines = grouped((f"{process.model}/{process.replica_id}", process) for process in node.orphans)
        for replica, processes in engines.items():
            first, number = processes[0], len(processes)
            yield Diagnosed(
                code="ORPHAN_ENGINE", severity="error", area="node", subject=names.get(node_id, node_id),
                message=f"an engine of {replica} runs without its replica: process {first.pid} ({first.command})"
                        + (f" and {number - 1} more" if number > 1 else ""),
                advice="--fix ends it: its environment has our variables, and no replica is above it",
                command="fleetctl doctor --nodes --fix")


FULL, NEARLY = 0.95, 0.90
"""Used parts of a disk; at the first Ray spills no more objects, and says so in its own log alone."""


def check_disks(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield each disk of Ray's logs and temporary folders that is full, or nearly; each once, whatever its paths."""
    for node in evidence.alive:
        asked = (evidence.nodes or {}).get(node.id)
        disks = [*(asked.disks if asked else ()), *evidence.vitals.disks.get(node.id, ())]
        reported: set[int] = set()
        for disk in disks:
            used = 1 - disk.free / disk.total if disk.total > 1 else 0  # a node in Kubernetes reports 1 byte
            if used < NEARLY or disk.total in reported:
                continue
            reported.add(disk.total)
            yield Diagnosed(
                code="DISK_FULL", severity="error" if used >= FULL else "warning", area="node", subject=node.name,
                message=f"the disk of {disk.path} is {used:.0%} full: {format_bytes(disk.free)} of "
                        f"{format_bytes(disk.total)} are free",
                advice="remove old sessions below Ray's temporary folder (session_* but for session_latest), or models "
                       "that nothing serves; until then keep new replicas away",
                command=f"fleetctl cordon {shlex.quote(node.name)} --reason 'disk full'")


def check_cordons(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield the nodes whose newest note is a cordon that has ended: they take new replicas, mended or not."""
    for node in evidence.alive:
        cordon = cordon_note(node, evidence.vitals.jobs)
        if cordon and has_ended(cordon, evidence.now):
            why = f" ({cordon.reason})" if cordon.reason else ""
            by = f" of {cordon.by}" if cordon.by else ""
            yield Diagnosed(
                code="CORDON_ENDED", severity="warning", area="node", subject=node.name,
                message=f"the cordon{by}{why} ended at {cordon.until}: the node takes new replicas again",
                advice="if it is well, take the note back; else cordon it again",
                command=f"fleetctl uncordon {shlex.quote(node.name)}")
