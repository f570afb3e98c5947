"""The history of a cluster: Ray's list of fleetctl jobs, and their logs, which also record replica shapes.

Ray keeps every job until its session ends. The list is one request, and each log is another. Logs are read in
parallel, and only if they are shown or needed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError

from fleetctl.apply.jobs import agent_package
from fleetctl.apply.run_state import RunLog, outcomes_of, read_log, status_of, summary_of
from fleetctl.documents.base import as_datetime
from fleetctl.documents.events import Event
from fleetctl.documents.history import History, HistoryEntry, HistoryRun
from fleetctl.documents.inventory import Level
from fleetctl.documents.mask import MASK
from fleetctl.documents.position import FleetSource
from fleetctl.documents.quantity import number_in
from fleetctl.documents.record import RecordedModel
from fleetctl.errors import ApplyError, InventoryError
from fleetctl.fleetfile.resolve import hash_of_shape
from fleetctl.inventory.ask_all import READERS, ask_all
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.jobs import AGENT, READ_ONLY, TOOL, Job, find_job, list_jobs, log_of, named_replicas
from fleetctl.inventory.json_values import moment_of_ms
from fleetctl.inventory.records import read_records
from fleetctl.inventory.starting import plans_in

LATEST, WHOLE_ID = "latest", re.compile("fleetctl-[a-z-]+-[0-9a-f]{12}")
_FILES = TypeAdapter(list[FleetSource])
SpecOf = tuple[str, str]
"""A model key and a spec hash."""
BATCH = 4 * READERS
"""How many logs `find_recorded` reads before it checks whether it has found all."""


def runs_of(client: DashboardClient, fleet: str | None) -> list[Job]:
    """Return the runs of one fleet, or of all, newest first, without those that only examined nodes."""
    return [job for job in reversed(list_jobs(client)) if fleet in (None, job.metadata.get("fleet"))
            and job.metadata.get("verb") not in READ_ONLY]


def recent_runs(client: DashboardClient, fleet: str | None) -> list[Job]:
    """Return the newest runs of one fleet, or of all, newest first, even if the list of jobs cannot be read.

    Raises InventoryError if no run is known.
    """
    known = read_records(client)
    if known.unknown:
        raise InventoryError(known.unknown)
    return [job for job in reversed(known.runs) if fleet in (None, job.metadata.get("fleet"))
            and job.metadata.get("verb") not in READ_ONLY]


def find_run(
    client: DashboardClient, wanted: str, fleet: str | None, verb: str | None = None,
    runs_in: Callable[[DashboardClient, str | None], list[Job]] = recent_runs,
) -> Job:
    """Return one run by its id; see `pick`. For a whole id the cluster is asked directly, else for the `runs_in` it."""
    whole = find_job(client, wanted) if WHOLE_ID.fullmatch(wanted) else None
    runs = [whole] if whole and whole.metadata.get("tool") == TOOL else runs_in(client, fleet)
    return pick([job for job in runs if fleet in (None, job.metadata.get("fleet"))
                 and verb in (None, job.metadata.get("verb"))], wanted)


def read_history(client: DashboardClient, fleet: str | None, limit: int) -> History:
    """Return the newest `limit` runs; raises InventoryError if the list of jobs cannot be read."""
    runs = runs_of(client, fleet)
    shown = runs[:limit]
    entries = [_entry(job, log) for job, log in zip(shown, read_logs(client, shown), strict=True)]
    return History(source=client.base_url, fleet=fleet, total=len(runs), runs=entries)


def read_run(client: DashboardClient, wanted: str, fleet: str | None) -> HistoryRun:
    """Return one run with its log. `wanted` = a job or plan id, a prefix of one, or `latest`; see `pick`."""
    job = find_run(client, wanted, fleet, runs_in=runs_of)
    [log] = read_logs(client, [job])
    return HistoryRun(**dict(_entry(job, log)), files=_files(log.events), outcomes=outcomes_of(log),
                      events=list(log.events))


def pick(runs: Sequence[Job], wanted: str) -> Job:
    """Return the run with this id; raises ApplyError if there is none, or lists the candidates if there are several.

    A prefix of the id is enough, or of its last part: the other parts are the same for all runs.
    """
    if wanted == LATEST:
        matching = list(runs[:1])
    else:
        matching = ([job for job in runs if job.submission_id == wanted]
                    or [job for job in runs if any(run_id.startswith(wanted) for run_id in _ids(job))])
    if len(matching) == 1:
        return matching[0]
    if not matching:
        raise ApplyError(f"no such run: {wanted}",
                         hint="`fleetctl history` lists the runs; the history of a new Ray session is empty")
    hint = "give more of the id"
    if len(commands := {job.metadata.get("stepOf") for job in matching}) == 1 and commands != {None}:
        hint = "these are steps of one command; give the id of one step"
    listed = ", ".join(job.submission_id for job in matching[:5]) + (", ..." if len(matching) > 5 else "")
    raise ApplyError(f"{wanted} matches {len(matching)} runs: {listed}", hint=hint)


def _ids(job: Job) -> list[str]:
    command = job.metadata.get("stepOf", "")
    ids = [job.submission_id, job.submission_id.rpartition("-")[2], job.metadata.get("planId", ""), command,
           command.rpartition("-")[2]]
    return [run_id for run_id in ids if run_id]


def read_logs(client: DashboardClient, runs: Sequence[Job]) -> list[RunLog]:
    """Return the log of each job, in order; the log that cannot be read has a `problem`."""
    return [read_log(text, job, problem) for job, (text, problem) in zip(runs, _texts(client, runs), strict=True)]


def _texts(client: DashboardClient, runs: Sequence[Job]) -> list[tuple[str | None, str]]:
    """Return the text of each job's log, or None and the reason."""
    def text_of(job: Job) -> tuple[str | None, str]:
        try:
            text = log_of(client, job.submission_id)
        except InventoryError as error:
            return None, f"its log could not be read: {error.message}"
        return text, "" if text is not None else "its log is gone: the cluster cannot serve it"

    return ask_all(text_of, runs)


def _entry(job: Job, log: RunLog) -> HistoryEntry:
    status, end_ms = status_of(job, log), _end_ms(job, log)
    counts: Counter[str] = Counter()
    for row in outcomes_of(log):
        counts[row.outcome] += row.replicas
    return HistoryEntry.model_validate({
        "id": job.submission_id, "state": status.state, "code": status.code, "message": status.message,
        "startedAt": moment_of_ms(job.start_time_ms), "endedAt": moment_of_ms(end_ms),
        "seconds": (end_ms - job.start_time_ms) / 1000 if 0 < job.start_time_ms <= end_ms else None,
        "counts": dict(counts), **_submitted(job.metadata),
    })


def _submitted(metadata: Mapping[str, str]) -> dict[str, object]:
    """Return the fields of a run that come from its metadata; see `apply/record.py`."""
    replicas = named_replicas(metadata)
    texts = ("command", "fleet", "namespace", "who", "run", "toolVersion", "planId", "commit", "branch", "stepOf",
             AGENT)
    return {
        "verb": metadata.get("verb", ""), "dirty": {"true": True, "false": False}.get(metadata.get("dirty", "")),
        "create": number_in(metadata.get("create")), "replicas": replicas,
        "level": metadata["level"] if metadata.get("level") in get_args(Level) else None,
        "replica": replicas[0] if len(replicas) == 1 else None,
        "agentOfThisVersion": metadata[AGENT] == agent_package().sha256 if AGENT in metadata else None,
        **{name: metadata.get(name) for name in texts},
    }


def _end_ms(job: Job, log: RunLog) -> int:
    """Return when the run ended, from its summary if Ray has not noticed the end yet; 0 = not ended."""
    summary = summary_of(log)
    if job.end_time_ms or summary is None:
        return job.end_time_ms
    try:
        end = as_datetime(summary.time)
    except ValueError:
        return 0
    return max(job.start_time_ms, int(end.timestamp() * 1000)) if end.tzinfo else 0


def _files(events: Sequence[Event]) -> list[FleetSource]:
    accepted: dict[str, Any] = next((event.model_extra or {} for event in events if event.type == "planAccepted"), {})
    try:
        return _FILES.validate_python(accepted.get("files", []))
    except ValidationError:
        return []


@dataclass(frozen=True, slots=True)
class Recorded:
    """One model as an apply recorded it. `whole` = no value of the shape is masked, as its hash proves."""

    shape: Mapping[str, Any]
    model: RecordedModel
    job: str
    whole: bool


def find_recorded(client: DashboardClient, fleet: str, wanted: Collection[SpecOf]) -> dict[SpecOf, Recorded]:
    """Return the record of the newest apply that created or reloaded each of `wanted`, if there is one.

    Stops reading logs when all are found. Raises InventoryError if no run is known.
    """
    found: dict[SpecOf, Recorded] = {}
    applies = filter(may_record, recent_runs(client, fleet))
    while len(found) < len(wanted) and (batch := list(islice(applies, BATCH))):
        for job, (text, _) in zip(batch, _texts(client, batch), strict=True):
            for recorded in recorded_in(text or "", job.submission_id):
                if (key := (recorded.model.key, recorded.model.spec_hash)) in wanted:
                    found.setdefault(key, recorded)
    return found


def may_record(job: Job) -> bool:
    """Return whether the log of a run may have the record of a model: it created or reloaded replicas."""
    return job.metadata.get("verb") == "apply" and (
        job.metadata.get("create") != "0" or bool(job.metadata.keys() & {"reload", "reloads"}))


def recorded_in(log: str, job: str) -> Iterator[Recorded]:
    """Yield the models recorded in a log. Skips a shape that does not match its hash, unless it has masked values."""
    for record in plans_in(log):
        try:
            hashes = {key: hash_of_shape(shape) for key, shape in record.shapes.items()}
        except (AttributeError, LookupError, TypeError, ValueError, RecursionError):
            continue
        for model in record.models:
            shape = record.shapes.get(model.spec_hash)
            if shape is None:
                continue
            whole = hashes[model.spec_hash] == model.spec_hash
            if whole or MASK in json.dumps(shape):
                yield Recorded(shape, model, job, whole)
