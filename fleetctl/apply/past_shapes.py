"""Finds the shapes that replicas were created with, in the logs of the applies, newest first. Reads only."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any

from fleetctl.apply.history import READERS, runs_of
from fleetctl.documents.mask import MASK
from fleetctl.documents.record import RecordedModel
from fleetctl.errors import InventoryError
from fleetctl.fleetfile.resolve import hash_of_shape
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.jobs import Job, log_of
from fleetctl.inventory.planned import read_records

SpecOf = tuple[str, str]
"""A model key and a spec hash."""

AT_ONCE = 4 * READERS


@dataclass(frozen=True, slots=True)
class Recorded:
    """One model as an apply recorded it. `whole` = nothing in the shape is masked: its hash proves it."""

    shape: Mapping[str, Any]
    model: RecordedModel
    job: str
    whole: bool


def find_recorded(client: DashboardClient, fleet: str, wanted: Collection[SpecOf]) -> dict[SpecOf, Recorded]:
    """Return the record of the newest apply that created each of `wanted`; without one the entry is missing.

    Reads logs only until all are found. Raises InventoryError when the list of jobs cannot be read.
    """
    found: dict[SpecOf, Recorded] = {}
    applies = (job for job in runs_of(client, fleet)
               if job.metadata.get("verb") == "apply" and job.metadata.get("create") != "0")
    while len(found) < len(wanted) and (some := list(islice(applies, AT_ONCE))):
        for one in _read(client, some):
            key = one.model.key, one.model.spec_hash
            if key in wanted:
                found.setdefault(key, one)
    return found


def _read(client: DashboardClient, applies: Sequence[Job]) -> Iterator[Recorded]:
    with ThreadPoolExecutor(max_workers=READERS, thread_name_prefix="log") as pool:
        for job, text in zip(applies, pool.map(lambda job: _log(client, job), applies), strict=True):
            yield from recorded_in(text, job.submission_id)


def _log(client: DashboardClient, job: Job) -> str:
    try:
        return log_of(client, job.submission_id) or ""
    except InventoryError:
        return ""


def recorded_in(log: str, job: str) -> Iterator[Recorded]:
    """Yield the models recorded in a log; a shape that does not match its hash and is not masked is left out."""
    for record in read_records(log):
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
