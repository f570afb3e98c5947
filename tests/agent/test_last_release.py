"""What a new actor says is what one of the last release says, to the byte: its clients and its runs still read it.

`last_release.json` has what that release was told, and its texts and states.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray_keys import Keys

from fleetctl.agent import reload, report
from fleetctl.agent.messages import FailedStart, Place, ReloadRequest, ReloadState, Replica, ServedWeights
from fleetctl.agent.reload import Reloading
from fleetctl.agent.report import StartFailed, about, decode_failure, describe, encode_failure, read_mark
from fleetctl.agent.wire import document_of, parse
from fleetctl.inventory.actors import packed_failure
from fleetctl.inventory.marks import read_marks

SAID = json.loads(Path(__file__).with_name("last_release.json").read_text(encoding="utf-8"))
FAILED = "HTTP 500"
NOW = "2026-03-04T12:00:00Z"


def places_of(documents: list[Any]) -> list[Place]:
    """Return places as the actors have them: with the claims of their members, which the last release kept apart."""
    return [parse(Place, document) for document in documents]


def with_claims(case: dict[str, Any]) -> list[Place]:
    claims = {member["rank"]: {key: member[key] for key in ("slot", "gpus", "vram", "cpus", "memory")}
              for member in case["replica"]["members"]}
    return places_of([{**claims[place["rank"]], **place} for place in case["places"]])


@pytest.mark.parametrize("case", SAID["reprs"])
def test_a_replica_describes_itself_as_before(case: dict[str, Any]) -> None:
    failed = parse(FailedStart, case["failed"]) if case["failed"] else None
    text = describe(parse(Replica, case["replica"]), with_claims(case), case["readyAt"], failed=failed)
    assert text == case["text"]
    assert read_marks(text).problems == ()
    mark = read_mark(case["text"])
    assert mark is not None
    assert (mark.members, mark.failed) == (tuple(with_claims(case)), failed)


@pytest.mark.parametrize("case", SAID["failures"])
def test_a_failure_is_packed_as_before(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "utc_now", lambda: NOW)
    places = places_of([case["place"]] if case["place"] else [])
    found = about(parse(Replica, case["replica"]), StartFailed(case["code"], case["message"], places))
    text = encode_failure(found)
    assert text == case["text"]
    assert decode_failure(case["text"]) == found
    assert packed_failure([text])["nodeIds"] == list(found.node_ids)


@pytest.mark.parametrize("case", SAID["reload"]["states"])
def test_a_reload_reports_its_state_as_before(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """An actor gets the request, and gives the state, as plain JSON: a run of either release talks to it."""
    said = SAID["reload"]
    Keys().install(monkeypatch, reload)
    monkeypatch.setattr(reload, "utc_now", lambda: NOW)
    monkeypatch.setattr(reload.node, "restart_count", lambda: 0)
    monkeypatch.setattr(reload, "ray", SimpleNamespace(get_runtime_context=lambda: SimpleNamespace(
        get_actor_id=lambda: "x")))

    def step(name: str, given: Any) -> dict[int, Any]:
        if case["failing"] and name in (case["failing"], "roll_back_engine"):
            raise StartFailed("RELOAD_FAILED", FAILED)
        return {index: parse(ServedWeights, said["served"]) if name == "serve_new" else None for index in given}

    reloading = Reloading(parse(Replica, said["replica"]), places_of(said["places"]), step)
    assert reloading.state() == {}
    reloading.begin(parse(ReloadRequest, {**said["request"], "runs": case["runs"]}))
    with reloading._busy:
        state = reloading.state()
    more = {"reason": f"{FAILED}; and it did not load its former weights again: {FAILED}"}
    expected = case["state"] if state["runs"] else {**case["state"], **more}
    assert state == json.loads(json.dumps(state)) == expected
    assert document_of(parse(ReloadState, state))["runs"] == case["state"]["runs"]
