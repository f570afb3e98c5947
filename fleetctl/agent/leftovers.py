"""What dead replicas and runs of ours left behind, and weights that no fleet file names: found, and removed if named.

An orphaned engine has no living replica: it is found by its FLEETCTL_ variables and its parent processes. A process
that has given itself another name, as vLLM's do, may have written over its environment. It is known by the working
directory that was made for its engine.

The explicit verbs remove only what the user has confirmed, and check each again before: repair ends engines and removes
placement groups and locks, prune removes weights from disks and ends nothing. Apply never imports this.
"""

from __future__ import annotations

import contextlib
import glob
import os
import signal
import time
from functools import partial
from typing import Any, Callable, Collection, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

import ray
from ray.core.generated import gcs_pb2
from ray.util.placement_group import PlacementGroup, remove_placement_group

from . import cluster, ports, processes
from .caches import folder
from .caches.snapshot import key_in
from .guarded import FRESH
from .lock import release_left
from .model_files import NOTE, WRONG_NOTE, path_prefix
from .on_nodes import ask_nodes, report_answers
from .processes import Process, ancestors, environment_of, is_running, parent_and_start
from .report import MARKED
from .run_messages import CachesRequest, EventStream, Orphan, RepairRequest
from .supervisor import ALONE_S
from .weights.store import CachedArtifact, cache_root, cached, remove

NEW_WORKER = b"default_worker.py"
GUARDS = (b"fleetctl-supervisor", NEW_WORKER)
WORKER = b"ray::"
ACTORS = (b"ray::ModelActor", b"ray::GangMember")
"""How the processes of the actors that have an engine are named."""
UNKNOWN = ("",) * len(MARKED)
SETTLE_S = ALONE_S + 1.0
"""What looks like an orphan may be ended by its guards within this time, or belong to an actor that has just begun."""
SHOWN = 200
IN_CONTAINER = tuple(name.encode() for name in (*MARKED, "FLEETCTL_NAME"))
"""Each of these shows that a container has an engine of ours; the command line tool reads none of them."""


def mark_of(pid: int) -> Optional[Tuple[str, ...]]:
    """Return a process's values of the MARKED variables; None if it lacks one, or belongs to another user.

    They are UNKNOWN for a process of an engine that has written over its environment.
    """
    environ = environment_of(pid)
    if not environ and _has_overwritten(pid):
        return UNKNOWN
    values = [environ.get(name.encode()) for name in MARKED]
    return tuple(os.fsdecode(value) for value in values if value is not None) if None not in values else None


def _has_overwritten(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as environ:
            is_blank = not environ.read().strip(b"\0") and environ.tell() > 0
        return is_blank and any(name.startswith(FRESH) for name in os.readlink(f"/proc/{pid}/cwd").split("/"))
    except OSError:
        return False


def find_orphans() -> List[Orphan]:
    """Return the processes that have our mark and are not below a living actor of a replica.

    The processes of an engine in a container that a daemon runs have no guard above them. So a process does not count
    if a guarded process, such as the daemon's client, has the same mark.
    """
    found = _find(actor_pids_here())
    if not found:
        return []
    time.sleep(SETTLE_S)
    again = _find(actor_pids_here())
    return [process for process in found if process in again]


def _find(living: Optional[Set[int]]) -> List[Orphan]:
    marks = {pid: mark for pid, mark in ((pid, mark_of(pid)) for pid in ports.visible_processes()) if mark}
    guarded = {pid for pid in marks if is_guarded(pid, living)}
    guarded_marks = {marks[pid] for pid in guarded} - {UNKNOWN}
    found = [Orphan(pid, parent_and_start(pid)[1], command_line(pid), mark[0], mark[1])
             for pid, mark in sorted(marks.items()) if pid not in guarded and mark not in guarded_marks]
    return [*found, *_in_containers(guarded, living)]


def _in_containers(guarded: Collection[int], living: Optional[Set[int]]) -> Iterator[Orphan]:
    """Yield one process of each container with an orphan. A container may have been given only some variables."""
    engines = [environment_of(pid) for pid in guarded]
    for pid in processes.in_other_namespaces(IN_CONTAINER):
        environ = environment_of(pid)
        given = {name: environ[name] for name in IN_CONTAINER if name in environ}
        has_client = any(given.items() <= engine.items() for engine in engines)
        if given and not has_client and not is_guarded(pid, living):
            model, replica_id = (os.fsdecode(given.get(name, b"")) for name in IN_CONTAINER[:2])
            container = processes.container_of(pid) or "unknown"
            yield Orphan(pid, parent_and_start(pid)[1], command_line(pid), model, replica_id, container)


def actor_pids_here() -> Optional[Set[int]]:
    """Return the pids of the living actors on this node; None = not known."""
    try:
        return cluster.actor_pids(ray.get_runtime_context().get_node_id())
    except Exception:  # Ray's head does not answer, or this is no worker of Ray
        return None


def is_guarded(pid: int, living: Optional[Set[int]]) -> bool:
    """Return whether a process is below a worker of Ray; if that is a replica's actor here, it must be `living`.

    A worker of another raylet is of another node or cluster on this host, whose actors are not ours to judge. If the
    living ones are not known, it is enough that an ancestor is a worker or a guard of ours.
    """
    above = [(ancestor, _words(ancestor)) for ancestor in ancestors(pid)]
    if living is None:
        return any(words[0].startswith(WORKER) or any(word.endswith(GUARDS) for word in words) for _, words in above)
    return any(any(word.endswith(NEW_WORKER) for word in words) or (words[0].startswith(WORKER) and (
        ancestor in living or not words[0].startswith(ACTORS) or parent_and_start(ancestor)[0] != os.getppid()))
        for ancestor, words in above)


def _words(pid: int) -> List[bytes]:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as cmdline:
            return cmdline.read().split(b"\0")
    except OSError:
        return [b""]


def command_line(pid: int) -> str:
    """Return the first two words of a command line: the others may hold a secret, and many people can read our log."""
    return os.fsdecode(b" ".join(_words(pid)[:2]).strip())[:SHOWN]


def end_orphans(agreed: Sequence[Orphan]) -> List[str]:
    """End those of the `agreed` processes that are still orphans; returns for each why it still runs, "" = it is gone.

    The process of a dead actor above them ends, too: it hangs, and Ray keeps its cards until then. A container is left
    to its daemon, which might start it again.
    """
    wanted = [(orphan.pid, orphan.began) for orphan in agreed]
    found = [(orphan.pid, orphan.began) for orphan in find_orphans()
             if (orphan.pid, orphan.began) in wanted and not orphan.container]
    hung = {ancestor for pid, _ in found for ancestor in ancestors(pid) if _words(ancestor)[0].startswith(ACTORS)}
    signalled([(pid, parent_and_start(pid)[1]) for pid in hung], signal.SIGKILL, 0)
    left = signalled(found, signal.SIGTERM, ALONE_S)
    left = signalled(left, signal.SIGKILL, ALONE_S)
    why = dict.fromkeys(filter(is_running, set(wanted).difference(found)), "it is no longer an orphan")
    why.update(dict.fromkeys(left, "it does not end"))
    return [why.get(process, "") for process in wanted]


def signalled(processes: Sequence[Process], number: int, within_s: float) -> List[Process]:
    """Send a signal to the processes, never to later ones with their pids; return those that run after this time."""
    for pid, began in processes:
        _signal(pid, began, number)
    deadline, left = time.monotonic() + within_s, list(processes)
    while left and time.monotonic() < deadline:
        left = list(filter(is_running, left))
        time.sleep(0.05)
    return left


def _signal(pid: int, began: int, number: int) -> None:
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if parent_and_start(pid)[1] == began:
            signal.pidfd_send_signal(handle, number)
    except OSError:
        return
    finally:
        os.close(handle)


PREFIX = "ModelActor:"
Result = Tuple[str, str, str]
"""The kind of a leftover, its name, and why it stays; "" = it is removed."""


def run_repair(request: RepairRequest, events: EventStream) -> int:
    """Remove placement groups, end orphaned engines, release locks; returns 0 all done, 3 some not."""
    events.begin(request)
    results: List[Result] = [("placementGroup", group.name, remove_group(group.id, group.name) or "")
                             for group in request.groups]
    for lock in request.locks:
        done = release_left(lock.fleet, lock.number)
        results.append(("lock", lock.fleet, "" if done else "it is held, or already released"))
    for answer in ask_nodes(end_orphans, request.orphans, request.timeout):
        agreed = request.orphans[answer.node_id]
        results += [("engine", f"process {orphan.pid} of {orphan.model}/{orphan.replica_id}", why)
                    for orphan, why in zip(agreed, answer.content or [answer.trouble] * len(agreed))]
    for thing, subject, why in results:
        events.emit("repaired", why, level="warning" if why else "info", thing=thing, subject=subject, done=not why)
    repaired = sum(not why for _, _, why in results)
    return events.end(0 if repaired == len(results) else 3, f"{repaired} of {len(results)} repaired")


def remove_group(group_id: str, name: str) -> Optional[str]:
    """Remove an abandoned placement group; returns why it stays, or None once it is removed.

    Our groups are named after their replica, are in our namespace, and were created by its coordinator actor, which had
    the name before. So a group is abandoned if its creator is dead and no actor has its name.
    """
    found = find_group(group_id)
    if found is None or found.name != name or found.state == gcs_pb2.PlacementGroupTableData.REMOVED:
        return "it is gone"
    if found.ray_namespace != ray.get_runtime_context().namespace or not name.startswith(PREFIX):
        return f"it is in namespace {found.ray_namespace}, not in ours"
    if not found.creator_actor_id.strip(b"\xff"):
        return "it was not created by an actor, so it is not ours"
    if cluster.actor_record(found.creator_actor_id.hex()).state != "DEAD" or name in cluster.taken_names():
        return "its replica is alive"
    remove_placement_group(PlacementGroup(ray.PlacementGroupID(bytes.fromhex(group_id))))
    return None


def find_group(group_id: str) -> Any:
    """Return Ray's own record of a placement group, or None."""
    packed = cluster.accessor().get_placement_group_info(ray.PlacementGroupID(bytes.fromhex(group_id)))
    return None if packed is None else gcs_pb2.PlacementGroupTableData.FromString(packed)


class Cache(NamedTuple):
    """The cache of a node: its folder, and the artifacts that were asked for."""

    root: str
    artifacts: Sequence[CachedArtifact]


def _run(task: Callable[[Sequence[str]], Cache], request: CachesRequest, events: EventStream) -> int:
    events.begin(request)
    silent = report_answers(task, request, events, "weightsCached", "answered")
    return events.end(3 if silent else 0, f"{len(request.nodes) - silent} of {len(request.nodes)} nodes answered")


def list_here(keep: Sequence[str]) -> Cache:
    """Return the cached artifacts of the node on which this runs, except those to keep, and its compile caches."""
    root = cache_root()
    return Cache(root, [*(_named(root, found) for found in cached(root) if found.artifact not in keep),
                        *folder.listed(root)])


def _named(root: str, found: CachedArtifact) -> CachedArtifact:
    """Return an artifact with the model whose compile cache it is, if it is one."""
    key = key_in(root, found.artifact)
    return found._replace(cache=folder.label(key)) if key else found


def remove_here(artifacts: Sequence[str]) -> Cache:
    """Remove artifacts and compile caches from the node on which this runs; a failure does not stop the others."""
    root = cache_root()
    return Cache(root, [*(_removed(root, _named(root, found)) for found in cached(root) if found.artifact in artifacts),
                        *folder.remove(root, artifacts)])


def _removed(root: str, found: CachedArtifact) -> CachedArtifact:
    try:
        removed = remove(root, found.artifact)
    except OSError as error:
        return found._replace(removed=False, trouble=error.strerror or str(error))
    for prefix in (NOTE, WRONG_NOTE) if removed else ():
        for path in glob.glob(f"{glob.escape(path_prefix(found.artifact, prefix))}*.json"):
            with contextlib.suppress(OSError):
                os.remove(path)
    return found._replace(removed=removed)


run_caches = partial(_run, list_here)
"""List the weights on each node's disk, except those to keep."""
run_prune = partial(_run, remove_here)
"""Remove the weights that the request names for each node, unless a process uses them."""
