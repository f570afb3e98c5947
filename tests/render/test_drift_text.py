"""Drift in words: those that are alike share their lines, what differs is told, and the way on is one that works."""

from __future__ import annotations

from typing import Any

from render_plans import plan, row

from fleetctl.documents.plan import Drift
from fleetctl.render.drift_text import alike, drift_details, models_with_surplus


def outdated(model: str, replica_id: int, **more: Any) -> Drift:
    return Drift(**{"model": model, "replica_id": replica_id, "code": "SPEC_CHANGED", "message": "outdated", **more})


def test_replicas_with_the_same_drift_stand_together() -> None:
    found = [outdated("m", 0), outdated("m", 1), outdated("m", 2, changes=["x"]), outdated("n", 0),
             outdated("m", 4), Drift(model="m", replica_id=0, code="ABOVE_SLOT_CAP", message="above")]
    assert [(name, one.code) for name, one in alike(found)] == [
        ("m/0-1,4", "SPEC_CHANGED"), ("m/2", "SPEC_CHANGED"), ("n/0", "SPEC_CHANGED"), ("m/0", "ABOVE_SLOT_CAP")]


def test_an_outdated_one_says_what_differs_and_how_to_replace_it() -> None:
    assert list(drift_details(outdated("a b", 3, changes=["args: x -> y"]))) == [
        "args: x -> y", "to replace it: fleetctl evict 'a b/3', then fleetctl apply starts one with the file's spec"]


def test_one_beyond_the_target_would_not_be_replaced() -> None:
    assert list(drift_details(outdated("m", 3), {"m"})) == []
    assert models_with_surplus(plan(models=[row("m", 1, 2, surplus=1), row("n", 1, 1)])) == {"m"}


def test_other_drift_is_not_cured_by_another_spec() -> None:
    above = Drift(model="m", replica_id=0, code="ABOVE_SLOT_CAP", message="above")
    assert list(drift_details(above)) == []
