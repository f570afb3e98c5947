"""Checks of the nodes: they answer and offer all their cards, and nothing uses them unnoticed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from fleetctl.doctor.evidence import Evidence
from fleetctl.documents.base import clock_text
from fleetctl.documents.canonical import short_hash
from fleetctl.documents.diagnosis import Diagnosed, Disk, OrphanProcess
from fleetctl.documents.inventory import LIVE_STATES, may_have_loaded, open_cases, unreporting, users_text
from fleetctl.documents.names import command_line
from fleetctl.documents.quantity import count_of, format_bytes, grouped, some
from fleetctl.inventory.cards import card_warnings, with_foreign_memory
from fleetctl.inventory.records import cordon_note, has_ended
from fleetctl.planner.placement.policies import policy_of


def check_answers(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield the nodes that did not start a worker."""
    names = {node.id: node.name for node in evidence.inventory.nodes}
    for node_id, node in (evidence.nodes or {}).items():
        if node.trouble:
            name = names.get(node_id, node_id)
            yield Diagnosed(
                code="NODE_SILENT", severity="error", area="node", subject=name, message=node.trouble,
                advice="replicas would not start there either: see raylet.out on that node, and keep new ones away",
                command=f"fleetctl cordon {shlex.quote(name)} --reason 'no answer'")


def check_gpu_counts(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield the nodes whose number of GPUs in Ray is not their number of cards, and the cards of more than one node."""
    unreported = {message: nodes for nodes, message in unreporting(evidence.alive)}
    for warning, nodes in unreported.items():
        yield Diagnosed(
            code="CARDS_UNREPORTED", severity="warning", area="node", message=warning,
            subject=some([node.name for node in nodes], 5),
            advice="--nodes asks the driver of each node which card it is; a node that has just started reports its "
                   "cards within a minute, and simulated cards are never reported", command="fleetctl doctor --nodes")
    for warning in card_warnings(evidence.alive):
        if warning in unreported:
            continue
        is_count = not warning.startswith("card ")
        yield Diagnosed(
            code="GPU_COUNT" if is_count else "CARD_SHARED", severity="warning", area="node",
            subject=warning.split()[0 if is_count else 1], message=warning, command="fleetctl inventory",
            advice="check the driver with `nvidia-smi`, then start Ray there with --num-gpus set to the number of cards"
            if is_count else "start one Ray node per machine, or give each its own CUDA_VISIBLE_DEVICES")


def check_failed_cards(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield each card that has failed itself, and the nodes with GPUs whose driver does not tell."""
    for node in evidence.alive:
        examined = (evidence.nodes or {}).get(node.id)
        for card in examined.cards if examined else ():
            lost = card.code == "CARD_LOST"
            yield Diagnosed(
                code=card.code, severity="error" if lost else "warning", area="node",
                subject=f"{node.name} card {card.number}",
                message=f"{card.message}{f' ({card.uuid})' if card.uuid else ''}: members refuse it, and plans do "
                        "not offer it while it cools",
                advice="restart the node, or reset the card once nothing uses its node; if it fails again, have it "
                       "replaced" if lost else
                       "reset the card with `nvidia-smi --gpu-reset` once nothing uses it; errors that come back, or "
                       "memory that cannot be replaced, need a new card",
                command=f"fleetctl cordon {shlex.quote(node.name)} --reason 'card {card.number} has failed'")
        if examined and examined.driver and node.resources.total.gpu > 0:
            yield Diagnosed(
                code="CARDS_UNCHECKED", severity="warning", area="node", subject=node.name,
                message=f"its cards cannot all be checked: {examined.driver}", advice="run `nvidia-smi` on that node")


def check_foreign_memory(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield each card that the planner does not offer whole because of foreign memory use (CARD_IN_USE)."""
    policies = evidence.fleet.policies if evidence.fleet else ()
    for node in evidence.inventory.nodes:
        members = [member for replica in evidence.inventory.replicas if replica.state in LIVE_STATES
                   for member in replica.members if member.node_id == node.id]
        bare = node.model_copy(update={"gpus": [card.model_copy(update={"memory_foreign": 0}) for card in node.gpus]})
        for card in with_foreign_memory(bare, members, policy_of(node, policies)).gpus:
            if not card.memory_foreign:
                continue
            total = f" of {format_bytes(card.memory_total)}" if card.memory_total else ""
            users = users_text(card)
            step = "end the processes that do not belong there" if users else "`nvidia-smi` there lists the processes"
            yield Diagnosed(
                code="CARD_IN_USE", severity="warning", area="node", subject=f"{node.name} card {card.index}",
                message=f"{format_bytes(card.memory_foreign)}{total} are in use{users}, beyond what Ray has granted on "
                        f"it: it is not offered whole{f' ({card.uuid})' if card.uuid else ''}",
                advice=f"{step}, or name what does belong there in spec.nodes[].residents; --nodes finds engines left "
                       "behind by fleetctl replicas",
                command="fleetctl doctor --nodes")


def check_orphans(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield each engine without its replica once, for all its processes. Ray grants its cards to others."""
    names = {node.id: node.name for node in evidence.inventory.nodes}
    for node_id, node in (evidence.nodes or {}).items():
        for process in node.orphans:
            if process.container:
                yield _left_container(names.get(node_id, node_id), process)
        engines = grouped((engine_of(process), process) for process in node.orphans if not process.container)
        for engine, processes in engines.items():
            first, number = processes[0], len(processes)
            yield Diagnosed(
                code="ORPHAN_ENGINE", severity="error", area="node", subject=names.get(node_id, node_id),
                message=f"{engine} runs without its replica: process {first.pid} ({first.command})"
                        + (f" and {number - 1} more" if number > 1 else ""),
                advice="--fix ends it: it has fleetctl's variables or folder, and no replica as an ancestor",
                command="fleetctl doctor --nodes --fix")


def engine_of(process: OrphanProcess) -> str:
    """Return an orphan's engine as text; its replica may not be known."""
    return f"an engine of {process.model or 'an unknown model'}" + (
        f"/{process.replica_id}" if process.replica_id else "")


def _left_container(node: str, process: OrphanProcess) -> Diagnosed:
    return Diagnosed(
        code="ORPHAN_CONTAINER", severity="error", area="node", subject=node,
        message=f"{engine_of(process)} runs in a container without its replica: container {process.container}, process "
                f"{process.pid} ({process.command})",
        advice="end the container there, as with `docker rm -f`; --fix leaves it alone, because the daemon that runs "
               "it may start it again. To make it end with its replica, use podman or apptainer, or a script that ties "
               "it to its client")


def check_weights(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield each file on a node's disk that was found wrong, until it is replaced and no engine can have loaded it."""
    seen = evidence.inventory
    for node in evidence.alive:
        for wrong in open_cases(node, seen.replicas):
            names = [f"{replica.model}/{replica.replica_id}" for replica in may_have_loaded(node, wrong, seen.replicas)]
            loaded = f"; {', '.join(names)} may have loaded it" if names else ""
            now = {"fetched": "it was fetched again", "wrong": "it is no longer served, and is being fetched again",
                   "unfetched": f"it could not be fetched again: {wrong.trouble}"}[wrong.now]
            part = f" of part {wrong.view}" if wrong.view else ""
            yield Diagnosed(
                code="WEIGHTS_WRONG", severity="error", area="node", subject=node.name,
                message=f"{wrong.file}{part} of weights {short_hash(wrong.artifact)} was not what the index says: "
                        f"piece {wrong.piece}, {wrong.reason}, found {clock_text(wrong.at, seen.observed_at)}; "
                        f"{now}{loaded}",
                advice=f"restart {'them all' if names[1:] else 'that replica'}: a new engine loads the right file; "
                       "if this happens again, check the node's disk, and who may write to it" if names else
                       "the next start there fetches it again; check the origins of these weights",
                command=command_line("fleetctl restart", names) if names else "fleetctl status --format wide")


FULL, NEARLY = 0.95, 0.90
"""Used fractions of a disk. At FULL Ray stops spilling objects, and only logs that."""


def check_disks(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield each full or nearly full disk of Ray's logs and temporary folders, once even if it has several paths."""
    for node in evidence.alive:
        examined = (evidence.nodes or {}).get(node.id)
        disks = [*(examined.disks if examined else ()), *evidence.vitals.disks.get(node.id, ())]
        reported: list[Disk] = []
        for disk in disks:
            used = 1 - disk.free / disk.total if disk.total > 1 else 0  # a node in Kubernetes reports 1 byte
            if used < NEARLY or any(map(disk.may_be, reported)):
                continue
            reported.append(disk)
            yield Diagnosed(
                code="DISK_FULL", severity="error" if used >= FULL else "warning", area="node", subject=node.name,
                message=f"the disk of {disk.path} is {used:.0%} full: {format_bytes(disk.free)} of "
                        f"{format_bytes(disk.total)} are free",
                advice="remove old sessions below Ray's temporary folder (session_*, except session_latest), or unused "
                       "models; until then keep new replicas away",
                command=f"fleetctl cordon {shlex.quote(node.name)} --reason 'disk full'")


FEW_FILES = 4096
LITTLE_LOCKED = 64 << 20
SMALL_SHARED = 1 << 30
MUCH_LEFT, MAX_LEFT = 1 << 20, 5


def check_limits(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield the nodes on which engines are worse off than Ray itself, or have less than engines usually need."""
    for node in evidence.alive:
        examined = (evidence.nodes or {}).get(node.id)
        limits = examined.limits if examined else None
        if limits is None:
            continue
        worse = [(text, setting) for amount, text, setting in (
            (limits.nice, f"{limits.nice} nicer than Ray itself, so other programs get most of a busy processor",
             "RAY_worker_niceness=0"),
            (limits.oom_score_adj, "as the first to be killed when memory is short",
             "RAY_worker_oom_score_adjustment=0")) if amount > 0]
        if worse:
            yield Diagnosed(
                code="ENGINES_NICED", severity="warning", area="node", subject=node.name,
                message=f"engines run there as Ray's workers do, {' and '.join(text for text, _ in worse)}, and this "
                        "user may not change that",
                advice=f"start Ray there with {' '.join(setting for _, setting in worse)} in its environment")
        if limits.open_files is not None and limits.open_files < FEW_FILES:
            yield Diagnosed(
                code="FEW_OPEN_FILES", severity="warning", area="node", subject=node.name,
                message=f"an engine may have {limits.open_files} files open there, and every connection is one",
                advice="raise the limit (`ulimit -n`, nofile) to 65535 for whoever starts Ray there, and restart it")
        if limits.rdma and limits.locked_memory is not None and limits.locked_memory < LITTLE_LOCKED:
            yield Diagnosed(
                code="LITTLE_LOCKED_MEMORY", severity="warning", area="node", subject=node.name,
                message=f"an engine may lock {format_bytes(limits.locked_memory)} of memory there, and RDMA needs all "
                        "of its buffers locked: gangs over several nodes fail, or are slow",
                advice="remove the limit (`ulimit -l`, memlock) for whoever starts Ray there, and restart it")


def check_shared_memory(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield the nodes whose shared memory is small or full, or holds what ended engines have left."""
    for node in evidence.alive:
        examined = (evidence.nodes or {}).get(node.id)
        shared = examined.shared_memory if examined else None
        if shared is None:
            continue
        size = sum(segment.size for segment in shared.left)
        names = [f"/dev/shm/{segment.name}" for segment in shared.left]  # noqa: S108  it is no file of ours
        if shared.total < SMALL_SHARED:
            yield Diagnosed(
                code="SMALL_SHARED_MEMORY", severity="warning", area="node", subject=node.name,
                message=f"its shared memory (/dev/shm) is {format_bytes(shared.total)}: engines of several processes "
                        "exchange tensors there, and end with a bus error when it is full",
                advice="give Ray's container more: `--shm-size` of docker and podman, or in Kubernetes an emptyDir "
                       "with `medium: Memory` at /dev/shm")
        elif shared.free < shared.total * (1 - NEARLY):
            yield Diagnosed(
                code="SHARED_MEMORY_FULL", severity="warning", area="node", subject=node.name,
                message=f"its shared memory (/dev/shm) is {1 - shared.free / shared.total:.0%} full: "
                        f"{format_bytes(shared.free)} of {format_bytes(shared.total)} are free",
                advice="`ls -lS /dev/shm` there shows what holds it")
        if size >= MUCH_LEFT:
            yield Diagnosed(
                code="SHARED_MEMORY_LEFT", severity="warning", area="node", subject=node.name,
                message=f"{format_bytes(size)} of its shared memory, in {count_of(len(names), 'segment')}, belong to "
                        "no process: engines that were killed could not remove them",
                advice=f"run there: rm {shlex.join(names[:MAX_LEFT])}{' ...' if names[MAX_LEFT:] else ''}")


def check_cordons(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield the nodes whose newest note is an expired cordon: they take new replicas, repaired or not."""
    for node in evidence.alive:
        cordon = cordon_note(node, evidence.vitals.records)
        if cordon and has_ended(cordon, evidence.now):
            why = f" ({cordon.reason})" if cordon.reason else ""
            by = f" of {cordon.by}" if cordon.by else ""
            yield Diagnosed(
                code="CORDON_ENDED", severity="warning", area="node", subject=node.name,
                message=f"the cordon{by}{why} expired at {cordon.until}: the node takes new replicas again",
                advice="if the node is healthy, remove the note; otherwise cordon it again",
                command=f"fleetctl uncordon {shlex.quote(node.name)}")
