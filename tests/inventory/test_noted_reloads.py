"""Notes of reloads: a reloaded spec counts while its actor lives unrestarted; a failed reload is a failure."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from fleetctl.documents.inventory import UNKNOWN_SPEC, Replica
from fleetctl.inventory.jobs import Job
from fleetctl.inventory.records import Records, records_of
from fleetctl.inventory.reloads import failed_reloads, with_reloads

A, B = "a" * 64, "b" * 64
RELOADS = "reloads"
"""Where earlier releases noted reloads: in the metadata of the job."""


def noted(*jobs: Job) -> Records:
    return Records(list(records_of(replace(job, submission_id=f"j{number}") for number, job in enumerate(jobs))))


def job(*notes: dict[str, Any], namespace: str = "fleet") -> Job:
    return Job("j", "SUCCEEDED", {"verb": "apply", "fleet": "lab", "namespace": namespace, RELOADS: json.dumps(notes)})


def note(spec: str = "new", **more: Any) -> dict[str, Any]:
    return {"model": "m", "replicaId": 0, "actorId": "x", "specHash": spec, "at": "2026-03-04T12:00:00Z", "restarts": 1,
            "nodeIds": ["n"], "weights": [{"artifact": B, "view": None, "whole": True, "port": 7, "bytes": 1}], **more}


def replica(**more: Any) -> Replica:
    member = {"weights": {"artifact": A, "port": 7}}
    return Replica.model_validate({"model": "m", "replicaId": 0, "actorId": "x", "specHash": "old", "restarts": 1,
                                   "readyAt": "2026-03-01T12:00:00Z", "members": [member], **more})


def reloaded(one: Replica, *jobs: Job) -> tuple[str | None, str | None]:
    [found] = with_reloads([one], noted(*jobs))
    weights = found.members[0].weights
    return found.spec_hash, weights.artifact if weights else None


def test_the_newest_note_sets_the_spec_and_the_time() -> None:
    assert reloaded(replica(), job(note("first"), note()), job(note("later"))) == ("later", B)
    [found] = with_reloads([replica()], noted(job(note())))
    assert found.ready_at == "2026-03-04T12:00:00Z"


def test_a_restarted_replica_reports_its_weights_and_while_it_starts_has_the_reloaded_spec() -> None:
    assert reloaded(replica(restarts=2), job(note())) == ("old", A)
    assert reloaded(replica(restarts=2, state="RESTARTING"), job(note())) == ("new", A)
    assert reloaded(replica(actorId="y"), job(note())) == ("old", A)


@pytest.mark.parametrize("damaged", [
    "no JSON", "{}", "[7]", json.dumps([{**note(), "at": "noon"}]), json.dumps([{**note(), "weights": []}]),
    json.dumps([{**note(), "weights": [{"artifact": "?"}]}]), "[" * 9999])
def test_an_unreadable_note_is_ignored(damaged: str) -> None:
    assert reloaded(replica(), Job("j", "SUCCEEDED", {RELOADS: damaged})) == ("old", A)


def test_a_reload_that_failed_is_a_failure_of_its_spec_on_its_nodes_and_changes_no_replica() -> None:
    failed = job(note(code="RELOAD_FAILED", message="HTTP 500", weights=[]))
    assert reloaded(replica(), failed) == ("old", A)
    others = [job(note(code="RELOAD_FAILED"), namespace="other"), job(note())]
    [failure] = failed_reloads(noted(failed, *others), "fleet")
    assert (failure.model, failure.spec_hash, failure.node_ids, failure.code, failure.fleet, failure.reload) == (
        "m", "new", ["n"], "RELOAD_FAILED", "lab", True)


def test_an_engine_that_ended_counts_until_a_replica_has_loaded_that_spec() -> None:
    ended = job(note(code="RELOAD_ENDED", weights=[]))
    asked = note(asked=True, weights=[], at="2026-03-04T12:01:00Z")
    loaded = note(at="2026-03-04T12:01:00Z", actorId="y")

    def codes(*jobs: Job) -> list[str]:
        return [one.code for one in failed_reloads(noted(*jobs), "fleet")]

    assert codes(ended, job(note("another", at="2026-03-04T12:01:00Z"))) == ["RELOAD_ENDED"]
    assert codes(ended, job(asked)) == ["RELOAD_ENDED"]
    assert codes(ended, job(loaded, namespace="other")) == ["RELOAD_ENDED"]
    assert codes(ended, job(loaded)) == []
    assert codes(job(loaded), job(note(code="RELOAD_ENDED", weights=[], at="2026-03-04T12:02:00Z"))) == ["RELOAD_ENDED"]


@pytest.mark.parametrize("code", [None, "RELOAD_FAILED"])
def test_after_a_reload_without_a_noted_success_the_spec_is_unknown(
    code: str | None
) -> None:
    asked = job(note(asked=True, weights=[], **({"code": code} if code else {})))
    assert reloaded(replica(), job(note("first")), asked) == (UNKNOWN_SPEC, A)
    assert reloaded(replica(restarts=2), asked) == ("old", A)
    assert reloaded(replica(restarts=2, state="RESTARTING"), asked) == (None, A)
    assert reloaded(replica(), asked, job(note("later", at="2026-03-04T12:01:00Z"))) == ("later", B)


def test_the_newest_note_has_the_latest_time_whichever_job_began_first() -> None:
    assert reloaded(replica(), job(note("later", at="2026-03-04T12:01:00Z")), job(note("first"))) == ("later", B)
