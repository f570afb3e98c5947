"""Records: what the cluster remembers for later plans and runs. Only this module writes them.

A record has a subject, a time and a payload. Of the records of one kind about one subject the newest counts. The
records of a kind, or of a kind and a fleet, are one row of Ray's job table: an ended job with a fixed id that never
ran. The dashboard answers a request for one id in milliseconds, however long its list of jobs is; the client reads them
there (`inventory/records.py`).

The row is a copy. The original is a numbered version in our part of Ray's key-value table: a writer reads the highest
number and writes the next one, and of two writers of a number Ray lets one succeed. So no writer loses the record of
another, and a writer that dies blocks nobody.

No `from __future__ import annotations` here: `wire.parse` reads the types of fields.
"""

import json
import random
import re
import time
from contextlib import suppress
from typing import Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

import ray
from ray._private.ray_constants import KV_NAMESPACE_JOB
from ray.experimental.internal_kv import (
    _internal_kv_del,
    _internal_kv_get,
    _internal_kv_list,
    _internal_kv_put,
    _pin_runtime_env_uri,
)

from . import cluster
from .lock import Numbered
from .messages import Json
from .report import KV_NAMESPACE, moment, utc_now
from .run_messages import EventStream
from .wire import document_of, parse

CORDON, SLOTS, PAUSE, DRAINING, RUN, RELOAD, UNFETCHED, NOT_READY = (
    "cordon", "slots", "pause", "draining", "run", "reload", "unfetched", "notready")
"""The kinds. The last three have a row for each fleet, the others one for the whole cluster.

The subject of NOT_READY is the actor of a replica that was ready and no longer is; it writes and removes the record.
"""
ROW, ROW_TOOL, ROW_VERSION = "fleetctl.records.", "fleetctl-records", "1.0"
ENTRYPOINT = "fleetctl keeps records here; nothing runs"
JOB_KEY, OUR_JOBS, TOOL = "_ray_internal_job_info_", "fleetctl-", "fleetctl"
ADOPTED = b"records-adopted"
KEPT, KEPT_RUNS, MAX_BYTES = 1000, 200, 1 << 20
"""Limits of a row. Beyond them, what no longer matters goes first, then the oldest."""
TRIES, PAUSE_S = 200, 0.02
NOTE_VERBS = ("cordon", "uncordon", "slots", "pause", "resume")
NO_RUNS = frozenset({"examine", "caches", *NOTE_VERBS})
"""The verbs that end nothing and create nothing: later plans need no record of the run."""
ENDED = frozenset({"STOPPED", "SUCCEEDED", "FAILED"})
SENT, SENT_TO = "gcs://fleetctl-", re.compile(r"gcs://(fleetctl-[a-z]+-[0-9a-f]{12})-(request|plan|watch|replan-\d+)")
"""What clients send to runs, in Ray's package table: the start of the keys, and the job and the name in a key."""
MOST_SENT, SENT_S = 1000, 600
"""How many are looked at, and how long Ray keeps one whose job does not exist yet."""


class Record(NamedTuple):
    """`at` = RFC 3339 in UTC with milliseconds, so texts sort by time."""

    subject: str
    at: str
    payload: Json


class RunRecord(NamedTuple):
    """What later plans may need to know of a run, by the names of its job's metadata.

    `driver` = Ray's id of its process; `ending` = the replicas of an eviction to WARM that have begun to drain.
    `variants` stays when the run has ended, for a `replace` that was killed after it.
    """

    verb: str
    fleet: Optional[str] = None
    namespace: Optional[str] = None
    plan_id: Optional[str] = None
    create: Optional[str] = None
    reload: Optional[str] = None
    who: Optional[str] = None
    command: Optional[str] = None
    tool_version: Optional[str] = None
    level: Optional[str] = None
    replicas: Optional[str] = None
    replica: Optional[str] = None
    ending: Optional[str] = None
    within: Optional[str] = None
    driver: Optional[str] = None
    ended: Optional[bool] = None
    variants: Optional[str] = None


class NoteRequest(NamedTuple):
    """The request to write a user's note about a node, a model or a fleet, the `subject`, as a record of this kind."""

    kind: str
    subject: str
    payload: Mapping[str, str]
    job: str
    tool_version: str = ""


class Listing(NamedTuple):
    """What the row of runs says about all rows: their names as a JSON list, and how many drivers there were."""

    rows: str = "[]"
    drivers: str = "0"


class Job(NamedTuple):
    """A job as Ray keeps it: its state, the time of its start in ms since the epoch, and its metadata."""

    status: str
    start_time: int
    metadata: Mapping[str, str]


class NodeNote(NamedTuple):
    """What a user's note about a node does: cordon or uncordon it, or set a number of slots."""

    verb: Json = None
    slots: Json = None


class PauseNote(NamedTuple):
    """What a user's note about a model or a fleet does: pause or resume it. `model` = None for the whole fleet."""

    verb: Json = None
    fleet: Json = None
    namespace: Json = None
    model: Json = None
    until: Json = None
    reason: Json = None
    who: Json = None

    @property
    def holds(self) -> bool:
        """Return whether this pauses something now: it has not ended."""
        return bool(self.verb == PAUSE and not (self.until and str(self.until) <= utc_now()))


class OldNotes(NamedTuple):
    """The notes that releases without records left in the metadata of a job; lists are JSON texts."""

    tool: str
    verb: str
    namespace: str = ""
    fleet: str = ""
    node: str = ""
    draining: str = ""
    reloads: str = "[]"
    unfetched: str = "[]"


Records = Dict[str, Record]
"""The records of one row, by subject."""


def add(kind: str, subject: str, payload: Json, fleet: str = "") -> bool:
    """Write a record; returns whether that succeeded."""
    record = Record(subject, moment(time.time()), payload)
    return change(kind, lambda found: {**found, subject: record}, fleet)


def remove(kind: str, subject: str, fleet: str = "") -> bool:
    """Remove the record about a subject; returns whether that succeeded."""
    return change(kind, lambda found: {key: record for key, record in found.items() if key != subject}, fleet)


def change(kind: str, edit: Callable[[Records], Records], fleet: str = "") -> bool:
    """Replace the records of a row by what `edit` makes of them; returns whether that succeeded.

    It never raises, as a record must not fail a run. `edit` is called again if another writer was faster.
    """
    row = ROW + kind + (f".{fleet}" if fleet else "")
    try:
        for _ in range(TRIES):
            number, found = _newest(row)
            kept = _bounded(kind, edit(found))
            text = _packed(kept.values())
            if _versions(row).write(number + 1, text.encode()):
                _publish(row, number + 1, text)
                is_same = number >= 0 and (kind != NOT_READY or bool(found) == bool(kept) == _is_listed(row))
                return kind == RUN or is_same or change(RUN, dict)  # the row of runs lists all rows
            time.sleep(random.uniform(0, PAUSE_S))
    except Exception:
        pass
    return False


def why_paused(fleet: str, namespace: str, model: str) -> str:
    """Return why this model gets no replicas now: a user has paused it, or its whole fleet. "" = it is not paused."""
    notes = [parse(PauseNote, record.payload) for record in records_of(PAUSE).values()]
    found = [note for note in notes if note.holds and (note.fleet, note.namespace) == (fleet, namespace)
             and note.model in (None, model)]
    if not found:
        return ""
    note = min(found, key=lambda note: note.model is not None)
    what = "paused" if note.model is not None else f"fleet {fleet} is paused"
    return (what + (f" by {note.who}" if note.who else "") + (f", until {note.until}" if note.until else "")
            + (f": {note.reason}" if note.reason else ""))


def records_of(kind: str, fleet: str = "") -> Records:
    """Return the records of a row, by subject, from Ray's own table."""
    return _newest(ROW + kind + (f".{fleet}" if fleet else ""))[1]


def forget_dead_actors() -> None:
    """Remove the records of replicas that are not ready and whose actors have ended since."""
    for row in _known_rows():
        if row.startswith(f"{ROW}{NOT_READY}."):
            dead = {subject for subject, record in _newest(row)[1].items() if _is_over(NOT_READY, record)}
            if dead:
                change(NOT_READY, lambda found, dead=dead: {  # type: ignore[misc]
                    subject: record for subject, record in found.items() if subject not in dead},
                    row[len(f"{ROW}{NOT_READY}."):])


def forget_sent() -> None:
    """Remove what was sent to runs that ended without reading it: plans have secrets, and a client may be killed.

    A request comes before its job, so one of an unknown job is left to Ray.
    """
    for key in _internal_kv_list(SENT.encode())[:MOST_SENT]:
        sent = SENT_TO.fullmatch(key.decode(errors="replace"))
        if sent is None:
            continue
        found = _internal_kv_get(f"{JOB_KEY}{sent[1]}".encode(), namespace=KV_NAMESPACE_JOB)
        if found is None and sent[2] == "request":
            _pin_runtime_env_uri(sent[0], expiration_s=SENT_S)
        elif found is None or _has_ended(found):
            _internal_kv_del(key)


def _has_ended(packed: bytes) -> bool:
    """Return whether a row of Ray's job table says so; one that is not as we know it does not."""
    with suppress(ValueError, TypeError, KeyError):
        info = json.loads(packed)
        return info["status"] in ENDED
    return False


def begin_run(job: str) -> None:
    """Record that this run begins, before it creates or ends anything."""
    adopt_old_notes()
    with suppress(Exception):
        _restore_rows()
        forget_dead_actors()
    with suppress(Exception):
        forget_sent()
    try:
        info, driver = _job(job), ray.get_runtime_context().get_job_id()
        run = parse(RunRecord, info.metadata)._replace(driver=driver)
        began = Record(job, moment(info.start_time / 1000), document_of(run))
        change(RUN, lambda found: {**{key: _checked(record) for key, record in found.items()}, job: began})
    except Exception:  # a Ray that stores jobs in another way: the list of jobs has the run
        pass


def become_run(job: str, metadata: Mapping[str, str]) -> bool:
    """Make the row of this job, whose agent waited for a plan, that of an apply which begins now.

    Clients read it there: before this, nobody may act on the plan. Returns whether the row says so now. It does not of
    a job that Ray has ended, whose process lives for up to a second more: its client gives the plan to another job.
    """
    key = f"{JOB_KEY}{job}".encode()
    info = json.loads(_internal_kv_get(key, namespace=KV_NAMESPACE_JOB))
    if info["status"] in ENDED:
        return False
    kept = {name: text for name, text in info["metadata"].items() if name in ("tool", "agent")}
    info.update(metadata={**metadata, **kept, "verb": "apply"}, start_time=int(time.time() * 1000))
    _internal_kv_put(key, json.dumps(info).encode(), overwrite=True, namespace=KV_NAMESPACE_JOB)
    written = _job(job)  # Ray reads, changes and writes a row as well: without our words
    return written.status not in ENDED and written.metadata == info["metadata"]


def mark_ending(job: str, replicas: Sequence[str]) -> None:
    """Add to the record of a run that these replicas have begun to drain."""
    _change_run(job, lambda run: run._replace(ending=json.dumps(list(replicas))))


def end_run(job: str) -> None:
    """Record that a run has ended."""
    _change_run(job, _ended)


def run_note(request: NoteRequest, events: EventStream) -> int:
    """Write a user's note as a record."""
    events.begin(request)
    adopt_old_notes()
    if add(request.kind, request.subject, request.payload):
        return events.end(0, "noted")
    return events.end(1, "the note could not be written to Ray's table")


def _change_run(job: str, edit: Callable[[RunRecord], RunRecord]) -> None:
    def edited(record: Record) -> Record:
        return record._replace(payload=document_of(edit(parse(RunRecord, record.payload))))

    change(RUN, lambda found: {key: edited(record) if key == job else record for key, record in found.items()})


def _ended(run: RunRecord) -> RunRecord:
    return run._replace(replicas=None, ending=None, ended=True)


def _checked(record: Record) -> Record:
    """Return the record of a run; it has ended if Ray says so, for an agent that was killed has not recorded it."""
    run = parse(RunRecord, record.payload)
    if run.ended:
        return record
    try:
        has_ended = _job(record.subject).status in ENDED
    except TypeError:  # Ray has no such job
        has_ended = True
    return record._replace(payload=document_of(_ended(run))) if has_ended else record


def _bounded(kind: str, records: Records) -> Records:
    """Return as many of the records as a row may have; of the runs, those that are recent or still matter."""
    sizes = {record.subject: len(_packed([record])) for record in records.values()}
    count, size = len(records), sum(sizes.values())
    if count <= (KEPT_RUNS if kind == RUN else KEPT) and size <= MAX_BYTES:
        return records
    by_age = sorted(records.values(), key=lambda record: record.at)
    recent = by_age[-KEPT_RUNS:] if kind == RUN else []
    over = {record.subject for record in by_age if record not in recent and _is_over(kind, record)}
    dropped = set()
    for subject in sorted((record.subject for record in by_age), key=lambda subject: subject not in over):
        if count <= KEPT and size <= MAX_BYTES and not (kind == RUN and subject in over):
            break
        dropped.add(subject)
        count, size = count - 1, size - sizes[subject]
    return {subject: record for subject, record in records.items() if subject not in dropped}


def _is_over(kind: str, record: Record) -> bool:
    """Return whether a record no longer matters much: its actor or node is gone, or its run has ended.

    A cordon or a number of slots matters although its node is gone: it is also for the next node with this name.
    """
    if kind == RUN:
        return bool(parse(RunRecord, record.payload).ended)
    if kind == PAUSE:
        return not parse(PauseNote, record.payload).holds
    if kind in (CORDON, SLOTS):
        note = parse(NodeNote, record.payload)
        if note.verb == CORDON or note.slots:
            return False
    subject = record.subject.partition("/")[0]
    if kind in (RELOAD, NOT_READY):
        return cluster.actor_record(subject).state == "DEAD"
    return subject not in cluster.alive_nodes()


def _versions(row: str) -> Numbered:
    return Numbered(f"records:{row}:")


def _newest(row: str) -> Tuple[int, Records]:
    """Return the number of a row's newest version and its records; -1 = there is none."""
    while True:
        number = max(_versions(row).numbers(), default=-1)
        packed = _versions(row).read(number) if number >= 0 else b"[]"
        if packed is not None:  # otherwise a newer version has just replaced it
            records = [parse(Record, entry) for entry in json.loads(packed)]
            return number, {record.subject: record for record in records}


def _publish(row: str, number: int, text: str) -> None:
    """Copy the newest version to the row of Ray's job table; again if another writer was faster meanwhile."""
    while True:
        now_ms = int(time.time() * 1000)
        metadata = {"tool": ROW_TOOL, "version": ROW_VERSION, "records": text, **(_table() if row == ROW + RUN else {})}
        info = {"status": "SUCCEEDED", "entrypoint": ENTRYPOINT, "message": ENTRYPOINT, "start_time": now_ms,
                "end_time": now_ms, "metadata": metadata}
        _internal_kv_put(f"{JOB_KEY}{row}".encode(), json.dumps(info).encode(), overwrite=True,
                         namespace=KV_NAMESPACE_JOB)
        newest, records = _newest(row)
        if newest == number:
            return
        number, text = newest, _packed(records.values())


def _table() -> Dict[str, str]:
    """Return which rows of records there are, and the numbers of rows of jobs, of our runs and of drivers.

    A row of NOT_READY is listed only while it has records: each row costs a reader a request. Drivers are numbered by
    Ray, and an actor knows only the number of the driver that created it.
    """
    jobs, driver = _jobs(""), int.from_bytes(bytes.fromhex(ray.get_runtime_context().get_job_id()), "little")
    rows = sorted(job for job in jobs
                  if job.startswith(ROW) and not (job.startswith(ROW + NOT_READY) and _is_empty(job)))
    return {"rows": json.dumps(rows), "jobs": str(len(jobs)),
            "runs": str(sum(job.startswith(OUR_JOBS) for job in jobs)),
            "drivers": str(max(driver, int(_listing().drivers)))}


def _listing() -> Listing:
    """Return what the row of runs said last."""
    try:
        return parse(Listing, _job(ROW + RUN).metadata)
    except TypeError:  # Ray has no such job
        return Listing()


def _is_listed(row: str) -> bool:
    return row in json.loads(_listing().rows)


def _is_empty(row: str) -> bool:
    numbers = _versions(row).numbers()
    return not numbers or _versions(row).read(max(numbers)) == b"[]"


def _known_rows() -> Set[str]:
    """Return the names of all rows that were ever written."""
    originals = _internal_kv_list(b"records:", namespace=KV_NAMESPACE)
    return {key.decode()[len("records:"):].rpartition(":")[0] for key in originals}


def _restore_rows() -> None:
    """Write the rows again that someone has deleted, such as a script for ended jobs; the originals have all."""
    for row in _known_rows() - {ROW + RUN, *_jobs(ROW)}:
        number, records = _newest(row)
        _publish(row, number, _packed(records.values()))


def _packed(records: Iterable[Record]) -> str:
    return json.dumps(document_of(list(records)), separators=(",", ":"))


def _jobs(prefix: str) -> List[str]:
    keys = _internal_kv_list((JOB_KEY + prefix).encode(), namespace=KV_NAMESPACE_JOB)
    return [key.decode()[len(JOB_KEY):] for key in keys]


def _job(job: str) -> Job:
    info = json.loads(_internal_kv_get(f"{JOB_KEY}{job}".encode(), namespace=KV_NAMESPACE_JOB))
    return Job(info["status"], info["start_time"], info["metadata"])


def adopt_old_notes() -> None:
    """Make records of the notes that earlier releases have left in the metadata of their jobs; once per cluster.

    It never raises, as a record must not fail a run: the next one tries again.
    """
    with suppress(Exception):
        if _internal_kv_get(ADOPTED, namespace=KV_NAMESPACE) is None and _adopt():
            _internal_kv_put(ADOPTED, b"", overwrite=True, namespace=KV_NAMESPACE)


def _adopt() -> bool:
    found: Dict[Tuple[str, str], Records] = {}
    for name in _jobs(OUR_JOBS):
        try:
            for kind, fleet, record in list(_old_records(name, _job(name))):
                records = found.setdefault((kind, fleet), {})
                if record.subject not in records or records[record.subject].at <= record.at:
                    records[record.subject] = record
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):  # not written by us
            continue
    written = [change(kind, lambda newer, older=records: {**older, **newer}, fleet)  # type: ignore[misc]
               for (kind, fleet), records in found.items()]
    return all(written)


def _old_records(name: str, job: Job) -> Iterator[Tuple[str, str, Record]]:
    """Yield the old notes of a job as records, each with its kind and fleet."""
    notes, at = parse(OldNotes, job.metadata), moment(job.start_time / 1000)
    if notes.tool != TOOL:
        return
    if notes.verb in ("cordon", "uncordon", "slots"):
        yield SLOTS if notes.verb == SLOTS else CORDON, "", Record(notes.node, at, job.metadata)
    elif notes.verb not in NO_RUNS:
        run = parse(RunRecord, job.metadata)
        yield RUN, "", Record(name, at, document_of(_ended(run) if job.status in ENDED else run))
    for node_id in notes.draining.split():
        yield DRAINING, "", Record(node_id, at, {})
    for note in json.loads(notes.reloads) if notes.fleet else ():
        payload = {**note, "fleet": notes.fleet, "namespace": notes.namespace}
        yield RELOAD, notes.fleet, Record(f"{note['actorId']}/{name}", at, payload)
    for note in json.loads(notes.unfetched) if notes.fleet else ():
        yield UNFETCHED, notes.fleet, Record(f"{note['nodeId']}/{note['artifact']}", at, note)
