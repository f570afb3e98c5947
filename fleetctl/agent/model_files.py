"""A member's weights: fetched to its node before its engine starts, served to other nodes, checked while it runs.

Notes in Ray's session log folder, which the dashboard serves, tell of weights on this node's disk. One says that they
are complete, and since when they are verified. If another process removes the files, it is wrong, and the next start
there fetches them again. Another note says that a file was found wrong.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from typing import Callable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import ray
from ray.experimental.internal_kv import _internal_kv_get, _internal_kv_put

from . import cluster
from .in_thread import Late, in_thread
from .messages import Engine, GotWeights, Member, PlannedWeights, ServedWeights, WeightSource
from .node import engine_environment, expand, log_path
from .own_files import replace_own
from .ports import host_port
from .report import KV_NAMESPACE, StartFailed, read_mark, utc_now
from .weights.check import BackgroundCheck, CheckedEntry, CheckResult, Verified
from .weights.fetch import Fetch, Fetched, ServingNow, Wanted
from .weights.index import WeightsError
from .weights.serve import Source, WeightsServer, serve_weights
from .weights.store import Entry, OutOfTime, cache_root
from .weights.views import read_view, with_a_pattern_per_rank
from .wire import document_of

MODEL_DIR, NEW_MODEL_DIR = "FLEETCTL_MODEL_DIR", "FLEETCTL_NEW_MODEL_DIR"
"""The variables with the folder of an engine's weights, and with that of the new ones for a reload."""
SECRET = b"weights-secret"
MAX_NOTE, MAX_TROUBLE = 300, 500
FETCH_AGAIN_S = 3600.0
LATE_S = 5.0
"""How long after its deadline a fetch may still end by itself; it knows best what it waited for."""
KINDS = ("ModelActor", "WarmReplica")
"""What the names of replicas' actors begin with."""
NOTE, WRONG_NOTE = "fleetctl-cold-", "fleetctl-wrong-"
"""Prefixes of the notes' names; see inventory/cold.py."""


def session_secret() -> bytes:
    """Return the secret of this cluster session, kept in Ray's key-value table: no GET of the dashboard shows it."""
    _internal_kv_put(SECRET, secrets.token_hex(32).encode(), overwrite=False, namespace=KV_NAMESPACE)
    return bytes(_internal_kv_get(SECRET, namespace=KV_NAMESPACE))


class ModelFiles:
    """The weights of one member on its node. The constructor returns once they are complete; raises StartFailed.

    `injected` = the member's FLEETCTL_ variables. `deadline` is monotonic. `say` writes to the engine's log.
    """

    def __init__(self, member: Member, injected: Mapping[str, str], deadline: float,
                 say: Callable[[str], None]) -> None:
        assert member.weights is not None
        self._secret = session_secret()
        self._say, self._ports = say, member.weights.ports
        self._root = cache_root()
        self._server: Optional[WeightsServer] = None
        self._source: Optional[Source] = None
        self._replica = f"{injected['FLEETCTL_MODEL']}/{injected['FLEETCTL_REPLICA_ID']}"
        self.served: Optional[ServedWeights] = None
        """What the member's place says: what is served, or why not, and where it came from."""
        try:
            self._wanted = wanted_by(member.weights, member.engine, injected, self._secret)
            fetch = Fetch(self._root, self._wanted, deadline, say, look=self._look)
            self._fetched, self._kept = noted(fetch), fetch.kept
        except OutOfTime as late:
            raise StartFailed("STARTUP_TIMEOUT", str(late)) from None
        except WeightsError as error:
            raise StartFailed("WEIGHTS_FAILED", f"{error} (node {member.node})") from None
        self._verified = Verified(self._root, self._wanted.artifact, self._secret)
        self._check = BackgroundCheck(self._held, self._verified, self._fetch_again, self._take)
        note_cold(self._root, self._fetched, self._verified)
        say(_log_line(self._fetched))

    def _look(self, replicas: Sequence[str]) -> ServingNow:
        return serving_now(self._wanted.artifact, replicas, but=self._replica)

    @property
    def folder(self) -> str:
        """The folder with the files."""
        return self._fetched.entry.folder

    def serve(self, ip: str, former: Optional[ModelFiles] = None) -> None:
        """Serve the weights from now on; they replace the `former` ones, on the same port."""
        self._source = source = Source(self._root, self._fetched, self._secret, replica=self._replica)
        source.on_report = self._check.request
        self._server, served = serve_weights(source, ip, self._ports, former._server if former else None)
        if self._server is None:
            self._say(f"weights: not served to other nodes: {served.unserved}")
        self.served = served._replace(fetched=fetch_document(self._fetched))

    def check(self) -> None:
        """Check the files from now on, in the background: the engine is ready."""
        self._check.start()

    def _held(self) -> List[CheckedEntry]:
        """Return what is checked: the member's files, the artifact's if they are here, and views made for others."""
        got = self._fetched
        return self._source.checked(own=True) if self._source is not None else [CheckedEntry(got.entry, got.held)]

    def _fetch_again(self, entry: Entry) -> None:
        """Fetch a wrong file again; raises WeightsError. Processes that have the old file open keep it."""
        wanted = self._wanted if entry.view else self._wanted._replace(view=None)
        fetch = Fetch(self._root, wanted, time.monotonic() + FETCH_AGAIN_S, lambda _: None, look=self._look)
        got = fetch.run()
        for kept in fetch.kept:
            kept.release()
        if got.entry.view == self._fetched.entry.view:
            self._fetched = self._fetched._replace(held=got.held)
            if self._source is not None:
                self._source.replace_held(got.held)

    def _take(self, finding: CheckResult) -> None:
        """Report what a check has found or done, in the engine's log and in a note that the dashboard serves."""
        self._say(f"weights: {finding}")
        note_wrong(finding)
        if finding.what == "verified":
            note_cold(self._root, self._fetched, self._verified)

    def release(self) -> None:
        """Allow other processes to remove the files from this node's disk, and check them no more."""
        self._check.close()
        for entry in self._kept:
            entry.release()
        if self._source is not None:
            self._source.release()

    def drain(self) -> None:
        """Refuse new fetches: the replica is shutting down."""
        if self._server is not None:
            self._server.source.table.close()


def noted(fetch: Fetch) -> Fetched:
    """Run a fetch, and note the wrong files that it has found on this node; raises WeightsError.

    It runs in a thread of its own and is left behind at its deadline, whatever hangs: a disk may be a file server's.
    """
    trouble = ""
    try:
        return in_thread(fetch.run, max(0.0, fetch.deadline - time.monotonic()) + LATE_S, "fleetctl-fetch")
    except Late:
        trouble = f"the weights were not complete in time: something hangs{fetch.waits_for()}"
        raise OutOfTime(trouble) from None
    except WeightsError as error:
        trouble = str(error)
        raise
    finally:
        for finding in fetch.found:
            note_wrong(finding._replace(what="unfetched", trouble=trouble) if trouble else finding)


def serving_now(artifact: str, replicas: Sequence[str], but: str = "") -> ServingNow:
    """Return which replicas of this namespace serve an artifact, by Ray's table; () = look at all, without `but`."""
    serving, restarting = list[Tuple[WeightSource, str]](), list[str]()
    with contextlib.suppress(Exception):  # Ray's head does not answer: what the plan says is as good as any
        at = cluster.addresses()
        for replica, record in _replicas(replicas):
            mark = read_mark(record.report) if replica != but else None
            held = [(place, place.weights) for place in (mark.members if mark else ())
                    if place.weights and place.weights.artifact == artifact and place.weights.port]
            if mark and held and record.state == "RESTARTING":
                restarting.append(replica)
            elif mark and record.state == "ALIVE":
                serving += [(WeightSource(replica, host_port(place.ip, weights.port), weights.view, weights.whole),
                             mark.ready_at) for place, weights in held
                            if weights.port and at.get(place.node_id) == place.ip]
    return ServingNow(serving, restarting)


def _replicas(wanted: Sequence[str]) -> Iterator[Tuple[str, cluster.ActorRecord]]:
    """Yield the replicas that serve or restart, HOT or WARM, as `model/id`; of the `wanted` ones, if any are."""
    if not wanted:
        own = ray.get_runtime_context().namespace
        for state in ("ALIVE", "RESTARTING"):
            for data in cluster.live_actors(state):
                kind, _, name = data.name.partition(":")
                if data.ray_namespace == own and kind in KINDS:
                    yield "/".join(name.rsplit(":", 1)), cluster.ActorRecord(state, True, data.repr_name, "")
        return
    for replica in dict.fromkeys(wanted):
        for kind in KINDS:
            with contextlib.suppress(ValueError):  # there is no such actor
                handle = ray.get_actor(":".join([kind, *replica.rsplit("/", 1)]))
                yield replica, cluster.actor_record(handle._actor_id.hex())


def wanted_by(weights: PlannedWeights, engine: Engine, injected: Mapping[str, str], secret: bytes) -> Wanted:
    """Return the weights that the plan wants for a member, with variables replaced as in its engine's arguments."""
    env = engine_environment(engine, injected, partial=True)  # before the start, some of ours are not known
    view = read_view(expand(with_a_pattern_per_rank(weights.view), env))
    origins = [expand(origin, env) for origin in weights.from_]
    return Wanted(weights.artifact, view, int(injected["FLEETCTL_RANK"]), int(injected["FLEETCTL_GROUP_SIZE"]),
                  origins, weights.sources, secret)


def fetch_document(got: Fetched) -> GotWeights:
    """Return what a place or an event says of a fetch: source, bytes, seconds, and the sources that it gave up."""
    left = tuple(f"{name}: {why}"[:MAX_NOTE] for name, why in got.left)
    return GotWeights(got.source, got.name, got.size, round(got.seconds, 2), got.reused, left)


def _log_line(got: Fetched) -> str:
    reused = f", {got.reused} bytes were already here" if got.reused else ""
    if not got.size:
        return f"weights: already on this node, {got.reused} bytes in {got.entry.folder}"
    return f"weights: {got.size} bytes from {got.name} in {got.seconds:.1f} s{reused}, in {got.entry.folder}"


class ColdNote(NamedTuple):
    """Weights are complete; `verified` = since when all files are, None = some are not. `bytes` of the files."""

    artifact: str
    view: Optional[str]
    at: str
    bytes: int
    root: str
    verified: Optional[str]


class WrongNote(NamedTuple):
    """A file was found wrong, and what came of it: see `check.Finding`."""

    artifact: str
    view: Optional[str]
    at: str
    file: str
    piece: int
    reason: str
    now: str
    trouble: str


def note_cold(root: str, got: Fetched, verified: Verified) -> None:
    """Note the weights that are complete on this node. Never fails, even on a full disk."""
    entries = [(got.entry, got.held)]
    if got.entry.view is not None and got.whole is not None:
        entries.append((Entry(root, got.entry.artifact, None), got.artifact))
    for entry, held in entries:
        _write(NOTE, ColdNote(entry.artifact, entry.view, utc_now(), held.size, root, verified.since(entry, held)))


def note_wrong(finding: CheckResult) -> None:
    """Note a wrong file, and what came of it. Never fails."""
    entry, wrong = finding.entry, finding.wrong
    if wrong is not None:
        _write(WRONG_NOTE, WrongNote(entry.artifact, entry.view, wrong.at or utc_now(), wrong.path, wrong.piece,
                                     wrong.reason, finding.what, finding.trouble[:MAX_TROUBLE]))


def _write(prefix: str, note: Union[ColdNote, WrongNote]) -> None:
    path = f"{path_prefix(note.artifact, prefix)}{f'-{note.view}' if note.view else ''}.json"
    with contextlib.suppress(OSError):
        replace_own(path, json.dumps(document_of(note)).encode())


def path_prefix(artifact: str, prefix: str = NOTE) -> str:
    """Return the path prefix of the notes about an artifact; it has the node id, as nodes may share the folder."""
    return log_path(f"{prefix}{ray.get_runtime_context().get_node_id()}-{artifact}")
