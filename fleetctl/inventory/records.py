"""Records: what the cluster remembers for plans, from the rows of its job table in which the agent keeps them.

Each row has a fixed id and is read by it, in milliseconds. The list of jobs takes longer the more jobs the cluster has
had, so a plan never depends on it: it is read only if it is short, and only for some seconds. What earlier releases
have noted in the metadata of jobs counts like a record. Of a kind and a subject the newest counts, wherever it is.

Notes about nodes, models and fleets are records too. One about a node applies to the node with its id and to a node
with its name: a restarted machine has a new id.

Any program of the cluster can write such a row: what cannot be read is left out, and a warning names the row.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

from pydantic import ValidationError

from fleetctl.documents.base import as_datetime, moment_at
from fleetctl.documents.inventory import Cordon, Node, Pause, Replica, Slots
from fleetctl.documents.quantity import number_in
from fleetctl.errors import ClusterRefused, ClusterUnreachable, InventoryError, PathNotServed
from fleetctl.inventory.client import DashboardClient, ask_all
from fleetctl.inventory.jobs import TOOL, Job, find_job, list_jobs, named_replicas, noted_list
from fleetctl.inventory.json_values import moment_of, object_of, parse_text, texts_of

CORDON, UNCORDON, SLOTS, PAUSE, RESUME, DRAINING, RUN, RELOAD, UNFETCHED, NOT_READY = (
    "cordon", "uncordon", "slots", "pause", "resume", "draining", "run", "reload", "unfetched", "notready")
"""The kinds of records, and the verbs of notes that end a cordon or a pause; see agent/records.py."""
OF_CLUSTER = (CORDON, SLOTS, PAUSE, DRAINING)
"""The kinds with one row for the whole cluster, beside that of the runs."""
NODE_NOTES = frozenset({CORDON, UNCORDON, SLOTS})
NOTES = NODE_NOTES | {PAUSE, RESUME}
"""The verbs of notes, which a user writes about a node, a model or a fleet."""
ROW, ROW_TOOL, ROW_VERSION = "fleetctl.records.", "fleetctl-records", 1
FEW_JOBS = 2000
"""With more rows in the job table, its list is not read for a plan."""
LIST_S, ONLY_LIST_S = 2.5, 10.0
"""How long the list of jobs may take, and if no row of records exists, so that only the list may have notes."""
MAX_ROWS, MAX_TEXT, MAX_RECORDS, MAX_LOOKED_UP = 500, 8 << 20, 5000, 100
_ROW_NAME = re.compile(r"fleetctl\.records\.[a-z]{1,40}(\.[a-z0-9.-]{1,80})?", re.ASCII)
_RUN_NAME = re.compile(r"[\w-]{1,200}", re.ASCII)
"""The form of a run's id: others would be another request, such as that for the list of jobs."""
_AT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)
UNKNOWN = "the history, and notes by earlier releases, are not known"


@dataclass(frozen=True, slots=True)
class Record:
    """One record; `at` = when it was written, RFC 3339 in UTC with milliseconds."""

    kind: str
    subject: str
    at: str
    payload: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Records:
    """The newest record of each kind and subject, and our runs, both from oldest to newest.

    `has_rows` = the cluster has records of its own. `table_rows` = how many rows the list of jobs had at the latest
    run. `listed` = the list was read, so no run is missing. `failures` = what could not be read and is needed;
    `warnings` = what else is not known; `unknown` = why no run is known at all.
    """

    newest: Sequence[Record] = ()
    runs: Sequence[Job] = ()
    has_rows: bool = False
    table_rows: int = 0
    listed: bool = False
    failures: Sequence[str] = ()
    warnings: Sequence[str] = ()
    unknown: str = ""

    def of(self, kind: str) -> list[Record]:
        """Return the records of one kind, oldest first."""
        return [record for record in self.newest if record.kind == kind]


NOTHING_KNOWN = Records()


def read_records(client: DashboardClient, *, with_list: bool = True) -> Records:
    """Read all records, and the list of jobs if it is short. `with_list` False = only if there are no records.

    Raises InventoryError if neither could be read.
    """
    trouble = None
    try:
        records = read_rows(client)
    except ClusterUnreachable:
        raise
    except InventoryError as error:
        trouble, text = error, f"the records could not be read, so reloads and drains are unknown: {error.message}"
        withheld = isinstance(error, (ClusterRefused, PathNotServed))
        records = Records(warnings=[text]) if withheld else Records(failures=[text])
    if records.has_rows and not with_list:
        return _with_states(client, records, ())
    if records.table_rows > FEW_JOBS:
        skipped = f"the list of jobs has {records.table_rows} rows and was not read: {UNKNOWN}"
        return _with_states(client, replace(records, warnings=[*records.warnings, skipped]), ())
    try:
        jobs = list_jobs(client.within(LIST_S if records.has_rows else ONLY_LIST_S))
    except InventoryError as error:
        if trouble:
            raise
        unknown = "" if records.has_rows else f"the jobs could not be read, so cordons are unknown: {error.message}"
        why = unknown or f"the list of jobs could not be read: {error.message}: {UNKNOWN}"
        return _with_states(client, replace(records, warnings=[*records.warnings, why], unknown=unknown), ())
    return _with_states(client, with_jobs(records, jobs), jobs)


def read_rows(client: DashboardClient) -> Records:
    """Read the records that the cluster has in rows of its job table; raises InventoryError for the row of runs."""
    index = _row(client, ROW + RUN)
    if index is None:
        return NOTHING_KNOWN
    of_cluster = [ROW + kind for kind in OF_CLUSTER]
    named = {name for name in texts_of(_parsed(index.get("rows"))) if _ROW_NAME.fullmatch(name)}
    others = sorted(named - {ROW + RUN}, key=lambda name: (name not in of_cluster, name)) if named else of_cluster
    rows = [_records_in(ROW + RUN, index), *ask_all(partial(_read, client, named), others[:MAX_ROWS])]
    if len(others) > MAX_ROWS:
        rows.append(_Row(failure=f"{len(others)} rows hold records; only {MAX_ROWS} of them were read"))
    newest = _newest(record for row in rows for record in row.records)
    runs_noted = [_run_of(record) for record in newest if record.kind == RUN and _RUN_NAME.fullmatch(record.subject)]
    return Records(newest, _in_order(runs_noted), has_rows=True, table_rows=_counts(index)[0],
                   failures=[row.failure for row in rows if row.failure],
                   warnings=[row.warning for row in rows if row.warning])


def read_runs(client: DashboardClient) -> list[Job]:
    """Return the runs that the cluster has records of, oldest first, as they recorded themselves; reads one row.

    Raises InventoryError.
    """
    noted = _records_in(ROW + RUN, _row(client, ROW + RUN) or {}).records
    return _in_order(_run_of(record) for record in noted if _RUN_NAME.fullmatch(record.subject))


def count_jobs(client: DashboardClient) -> tuple[int, int]:
    """Return how many rows the list of jobs had at the latest run, and how many of them were runs of ours.

    0 = not known. It reads one row. Raises InventoryError.
    """
    return _counts(_row(client, ROW + RUN) or {})


def _counts(index: Mapping[str, Any]) -> tuple[int, int]:
    jobs, drivers, runs = (number_in(index.get(key)) or 0 for key in ("jobs", "drivers", "runs"))
    return max(jobs, drivers), runs


def with_jobs(records: Records, jobs: Sequence[Job]) -> Records:
    """Return the records together with all jobs of the list, and with what earlier releases noted there."""
    runs = {job.submission_id: job for job in jobs}
    for run in records.runs:
        listed = runs.get(run.submission_id)
        runs[run.submission_id] = replace(listed, metadata={**run.metadata, **listed.metadata}) if listed else run
    newest = _newest([*records_of(jobs), *records.newest])
    return replace(records, newest=newest, runs=_in_order(runs.values()), listed=True)


def records_of(jobs: Iterable[Job]) -> Iterator[Record]:
    """Yield what earlier releases have noted in the metadata of jobs; `jobs` from oldest to newest."""
    for job in jobs:
        at, noted, where = _text_of_ms(job.start_time_ms), job.metadata, job.submission_id
        if noted.get("verb") in NODE_NOTES:
            kind = SLOTS if noted["verb"] == SLOTS else CORDON
            yield Record(kind, noted.get("node", ""), at, noted)
        for node_id in noted.get("draining", "").split():
            yield Record(DRAINING, node_id, at, {})
        of_run = {"fleet": noted.get("fleet"), "namespace": noted.get("namespace")}
        for row in map(object_of, noted_list(noted, "reloads")):
            yield Record(RELOAD, f"{row.get('actorId')}/{where}", at, {**row, **of_run})
        for row in map(object_of, noted_list(noted, "unfetched")):
            yield Record(UNFETCHED, f"{row.get('nodeId')}/{row.get('artifact')}", at, row)


def with_runs_of(client: DashboardClient, records: Records, drivers: Iterable[str]) -> tuple[Records, frozenset[str]]:
    """Return the records with the runs of these drivers, and the drivers whose run could not be looked up.

    A driver is the process of a run; Ray names it with each actor that it has created.
    """
    known = {job.driver_id for job in records.runs}
    unknown = [] if records.listed else [driver for driver in dict.fromkeys(drivers) if driver not in known]
    unread = set(unknown[MAX_LOOKED_UP:])

    def look_up(driver: str) -> Job | None:
        try:
            return find_job(client, driver)
        except InventoryError:
            unread.add(driver)
            return None

    looked_up = [job for job in ask_all(look_up, unknown[:MAX_LOOKED_UP]) if job and job.metadata.get("tool") == TOOL]
    return replace(records, runs=_in_order([*records.runs, *looked_up])), frozenset(unread)


class _Row(NamedTuple):
    """A row as it was read: its records, why it could not be read, and what is wrong with it."""

    records: Sequence[Record] = ()
    failure: str = ""
    warning: str = ""


def _row(client: DashboardClient, name: str) -> Mapping[str, Any] | None:
    """Return the metadata of a row; None if there is none."""
    job = find_job(client, name)
    return job.metadata if job else None


def _read(client: DashboardClient, named: Collection[str], name: str) -> _Row:
    try:
        metadata = _row(client, name)
        if metadata is not None:
            return _records_in(name, metadata)
        gone = f"{name} is gone: someone has deleted it; the next run of the agent restores it"
        return _Row(warning=gone if name in named else "")
    except InventoryError as error:
        return _Row(failure=f"the records in {name} could not be read: {error.message}")


def _records_in(name: str, metadata: Mapping[str, Any]) -> _Row:
    """Return the records of a row of the job table; any program may have written it."""
    major = number_in(str(metadata.get("version")).partition(".")[0])
    if metadata.get("tool") != ROW_TOOL or major is None:
        return _Row(warning=f"{name} has no records of fleetctl; it is left out")
    if major > ROW_VERSION:
        return _Row(failure=f"{name} was written by a newer fleetctl, which is needed to read it")
    kind, rows = name.removeprefix(ROW).partition(".")[0], _parsed(metadata.get("records"))
    if not isinstance(rows, list) or len(rows) > MAX_RECORDS:
        return _Row(warning=f"the records in {name} cannot be read; they are left out")
    records = [Record(kind, row["subject"], row["at"], row["payload"]) for row in map(object_of, rows)
             if isinstance(row.get("subject"), str) and isinstance(row.get("payload"), dict)
             and moment_of(row.get("at")) and _AT.fullmatch(row["at"])]
    unread = len(rows) - len(records)
    return _Row(records, warning=f"{unread} of {len(rows)} records in {name} cannot be read; they are left out"
                if unread else "")


def _parsed(text: object) -> object:
    """Return the value in JSON text; None if it is not text, too long, or not JSON."""
    try:
        return parse_text(text) if isinstance(text, str) and len(text) <= MAX_TEXT else None
    except ValueError:
        return None


def _newest(records: Iterable[Record]) -> list[Record]:
    newest: dict[tuple[str, str], Record] = {}
    for record in sorted(records, key=attrgetter("at")):
        newest.pop((record.kind, record.subject), None)
        newest[record.kind, record.subject] = record
    return list(newest.values())


def _run_of(record: Record) -> Job:
    fields = {key: value for key, value in record.payload.items() if isinstance(value, str)}
    start_ms = int(as_datetime(record.at).timestamp()) * 1000 + int(record.at[-4:-1])
    driver, status = fields.pop("driver", ""), "SUCCEEDED" if record.payload.get("ended") is True else "RUNNING"
    return Job(record.subject, status, {"tool": TOOL, **fields}, start_time_ms=start_ms, driver_id=driver)


def _with_states(client: DashboardClient, records: Records, jobs: Sequence[Job]) -> Records:
    """Return the records; of a run without an end that is not in the list, Ray is asked: its agent may be dead."""
    listed = {job.submission_id for job in jobs}
    unsure = [run for run in records.runs if not run.ended and run.submission_id not in listed][-MAX_LOOKED_UP:]

    def state_of(run: Job) -> Job:
        try:
            job = find_job(client, run.submission_id)
        except InventoryError:
            return run
        return replace(run, status=job.status if job else "STOPPED")

    asked = {run.submission_id: run for run in ask_all(state_of, unsure)}
    return replace(records, runs=[asked.get(run.submission_id, run) for run in records.runs]) if asked else records


def _in_order(runs: Iterable[Job]) -> list[Job]:
    return sorted(runs, key=lambda job: (job.start_time_ms, job.submission_id))


def _text_of_ms(ms: int) -> str:
    try:
        return f"{moment_at(ms // 1000)[:-1]}.{ms % 1000:03}Z"
    except (OverflowError, ValueError):  # out of the range of dates
        return f"{moment_at(0)[:-1]}.000Z"


ENDING = "ending"
"""The field under which the run of an eviction to WARM names the replicas that it ends now; see agent/warm.py."""

WITHIN = "within"
"""The key of a run's metadata with the whole seconds that all of it may take."""

Note = Mapping[str, Any]
NO_NOTE = Record("", "", "", {})


def with_notes(nodes: Sequence[Node], records: Records, observed_at: str) -> list[Node]:
    """Return the nodes with the notes in force at `observed_at`."""
    cordons, slots = _by_node(records.of(CORDON)), _by_node(records.of(SLOTS))
    if not (cordons or slots):
        return list(nodes)
    return [_noted(node, _note_of(node, cordons), _note_of(node, slots), observed_at) for node in nodes]


def _noted(node: Node, cordoning: Record, slots: Record, observed_at: str) -> Node:
    cordon = _cordon(cordoning.payload)
    undone = cordoning.payload.get("verb") == UNCORDON
    return node.model_copy(update={
        "cordon": None if cordon is None or has_ended(cordon, observed_at) else cordon,
        "uncordoned_at": f"{cordoning.at[:-5]}Z" if undone else None, "slots": _slots(slots.payload)})


def with_draining(replicas: Sequence[Replica], runs: Sequence[Job], namespace: str) -> list[Replica]:
    """Return the replicas; those that a running eviction names are marked as draining.

    A replica that becomes WARM serves until its weights are loaded: only then does the agent name it.
    """
    ending = {name: _seconds(job.metadata.get(WITHIN)) for job in runs
              if job.metadata.get("verb") == "evict" and not job.ended
              and job.metadata.get("namespace") in (namespace, None) for name in _ending(job.metadata)}
    return [replica.model_copy(update={"draining": True, "gone_within_s": ending[name]})
            if replica.fleet and replica.level == "HOT" and (name := f"{replica.model}/{replica.replica_id}") in ending
            else replica for replica in replicas]


def _seconds(text: str | None) -> float | None:
    number = number_in(text)
    return float(number) if number is not None else None


def _ending(metadata: Mapping[str, str]) -> list[str]:
    return [str(name) for name in noted_list(metadata, ENDING)] if metadata.get("level") == "WARM" \
        else named_replicas(metadata)


def cordon_note(node: Node, records: Records) -> Cordon | None:
    """Return the cordon of the newest note about a node, even if it has expired."""
    return _cordon(_note_of(node, _by_node(records.of(CORDON))).payload)


def pauses_in(records: Records, namespace: str) -> list[Pause]:
    """Return the newest pause of each model and fleet in a Ray namespace, even if it has expired."""
    notes = [record for record in records.of(PAUSE)
             if record.payload.get("verb") == PAUSE and record.payload.get("namespace") == namespace]
    pauses = [_pause(record.payload, f"{record.at[:-5]}Z") for record in notes]
    return sorted(pauses, key=lambda pause: (pause.fleet, pause.model or ""))


def _pause(note: Note, since: str) -> Pause:
    """Return the pause; if its end cannot be read it has none, so that nothing is created by mistake."""
    model = note.get("model")
    pause = {"fleet": str(note.get("fleet", "")), "model": None if model is None else str(model), "since": since,
             "by": str(note.get("who", "")), "reason": str(note.get("reason", ""))}
    try:
        return Pause.model_validate({**pause, "until": note.get("until") or None})
    except ValidationError:
        return Pause.model_validate(pause)


def note_text(note: Note) -> str:
    """Return in words what a note did."""
    node, verb = note.get("nodeName", ""), note.get("verb")
    if verb == SLOTS:
        return f"{node}: {note['slots']} slots" if note.get("slots") else f"{node}: slots as without a note"
    until = f" until {note['until']}" if note.get("until") else ""
    reason = f": {note['reason']}" if note.get("reason") else ""
    fleet = f"fleet {note.get('fleet', '')}"
    paused = f"{note['model']} of {fleet}" if note.get("model") else fleet
    return {CORDON: f"cordoned {node}{until}{reason}", PAUSE: f"paused {paused}{until}{reason}",
            RESUME: f"resumed {paused}"}.get(str(verb), f"uncordoned {node}")


def _by_node(notes: Sequence[Record]) -> dict[str, tuple[int, Record]]:
    """Return the newest note by node id and by node name, with its index in `notes`."""
    newest: dict[str, tuple[int, Record]] = {}
    for index, note in enumerate(notes):
        for key in ("node", "nodeName"):
            newest[str(note.payload.get(key, ""))] = index, note
    return newest


def _note_of(node: Node, newest: Mapping[str, tuple[int, Record]]) -> Record:
    notes = [newest[key] for key in (node.id, node.name) if key in newest]
    return max(notes, key=lambda entry: entry[0])[1] if notes else NO_NOTE


def _cordon(note: Note) -> Cordon | None:
    """Return the cordon; if its end cannot be read it has none, so that nothing is placed by mistake."""
    if note.get("verb") != CORDON:
        return None
    cordon = {"reason": str(note.get("reason", "")), "by": str(note.get("who", ""))}
    try:
        return Cordon.model_validate({**cordon, "until": note.get("until") or None})
    except ValidationError:
        return Cordon.model_validate(cordon)


def has_ended(note: Cordon | Pause, now: str) -> bool:
    """Return whether a cordon or a pause has expired."""
    return note.until is not None and as_datetime(note.until) <= as_datetime(now)


def _slots(note: Note) -> Slots | None:
    """Return the slots; None for a note without a number, such as one that withdraws an earlier note."""
    try:
        return Slots.model_validate({"value": note.get("slots"), "source": f"note of {note.get('who', '')}"})
    except ValidationError:
        return None
