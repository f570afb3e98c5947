"""The documents match the published schemas: no key is missing, and every key is described."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from cluster_stand_in import ClusterStandIn, serve
from small_plans import small_plan

from fleetctl.agent.run_messages import EventStream
from fleetctl.documents.canonical import indented_json
from fleetctl.documents.plan import GitFacts, Plan
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.dashboard import Live
from fleetctl.render.plan_json import render_plan_json, saved_plan_json

SCHEMAS = Path(__file__).parents[2] / "schemas"


def closed(schema: Any) -> Any:
    """The published schema, with all undescribed keys forbidden."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    stricter = {key: closed(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        stricter["additionalProperties"] = False
    return stricter


def problems(name: str, document: Any, *, strict: bool = True) -> list[str]:
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    validator = jsonschema.Draft7Validator(closed(schema) if strict else schema)
    return [f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in validator.iter_errors(document)]


def replica(model: str, number: int, node: str, **more: Any) -> dict[str, Any]:
    return {"model": model, "replicaId": number, "fleet": "lab", "specHash": "an-older-one",
            "members": [{"group": "main", "nodeId": node, "gpus": 80_000, "slot": 0}], **more}


PLANS = {
    "nothing fits": small_plan(),
    "partial": small_plan("a", "b"),
    "all fits": small_plan(
        "a", "b", "c", git=GitFacts(commit="c" * 40, branch="main"), expires_at="2026-03-05T12:00:00Z"),
    "held, drifted, lost, unmanaged": small_plan("a", "b", "c", "d", dead=["gone"], replicas=[
        *(replica("org/one:1", number, f"id-{name}") for number, name in enumerate("abcd")),
        replica("org/one:1", 9, "id-gone"), replica("foreign", 0, "id-a", fleet=None, members=[{"nodeId": "id-a"}]),
        {"model": "odd", "foreignId": "ab12c:ModelActor:odd", "members": [{"nodeId": "id-b"}]}]),
    "claimed by another fleet": small_plan("a", replicas=[replica("org/gang", 0, "id-a", fleet="theirs")]),
}


def test_the_plans_of_this_file_cover_every_part_of_a_plan() -> None:
    for part in ("actions", "holds", "blocked", "drift", "unmanaged", "lost", "specs"):
        assert any(getattr(plan, part) for plan in PLANS.values()), part


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_a_saved_and_a_shown_plan_match_their_schema(plan: Plan) -> None:
    assert problems("plan", json.loads(saved_plan_json(plan))) == []
    shown = json.loads(render_plan_json(plan))
    shown.pop("masked", None)  # only the shown form has this key, and only fleetctl's refusal reads it
    assert problems("plan", shown) == []


@pytest.mark.parametrize("key", [
    "planId", "formatVersion", "kind", "fleet", "inventory", "actions", "blocked", "exitCode",
])
def test_every_plan_has_the_required_keys(key: str) -> None:
    assert all(key in json.loads(saved_plan_json(plan)) for plan in PLANS.values())


def test_an_inventory_from_a_dashboard_matches_its_schema() -> None:
    cluster = ClusterStandIn()
    first, second = cluster.add_node("node-a", **{"fleet.io/pool": "l4"}), cluster.add_node("node-b", state="DEAD")
    cluster.add_replica("org/one", 0, first)
    cluster.add_replica("org/one", 1, second, state="RESTARTING")
    cluster.add_replica("odd", 0, first, fleet=None, gpus=0)
    with serve(cluster), DashboardClient(cluster.url) as client:
        inventory = Live(client, lambda: "2026-03-04T12:00:00Z").read()
    assert len(inventory.replicas) == 3
    assert problems("inventory", json.loads(indented_json(inventory))) == []


def test_events_of_the_agent_match_their_schema(capsys: pytest.CaptureFixture[str]) -> None:
    from fleetctl.agent.messages import GotWeights, Lifecycle, Member, Place, Replica, ServedWeights
    from fleetctl.agent.run import OnNodes, outcome_of
    from fleetctl.agent.run_messages import Holder

    members = [Member("main", 0, "Worker", rank, node, node) for rank, node in enumerate(("a", "b", "a"))]
    got = ServedWeights("a" * 64, None, fetched=GotWeights("peer", "m/0 on a", 7, 1.5, left=("m/1: no answer",)))
    places = [Place(ip="::1", port=8000, weights=got), Place(copy=1, ip="10.0.0.1", port=8000)]
    rows = [outcome_of(Replica("m/0", "m", number, Lifecycle(1.0), members=members, variant="a100"), kind, code,
                       "words", places=found, seconds=1.257, level="HOT")
            for number, (kind, code, found) in enumerate([
                ("ready", None, places), ("failed", "ENGINE_EXITED", ()), ("starting", "STILL_STARTING", ()),
                ("skipped", "INTERRUPTED", ()), ("blocked", "NODE_TAKEN", ())])]
    assert (rows[0].nodes, rows[0].seconds, rows[0].addresses) == (["a", "b"], 1.26, ["[::1]:8000", "10.0.0.1:8000"])
    rows.append(outcome_of(OnNodes("m", ()), "blocked", "INSUFFICIENT_GPU", "needs 8", replicas=2))
    events = EventStream()
    events.emit("version", "fleetctl agent", version="1.0")
    events.emit("lockHeld", "held", level="error", holder=Holder("j"))
    events.emit("runSummary", "1 of 6 ready", level="warning", outcomes=rows, exitCode=3, interrupted=False)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [problem for line in lines for problem in problems("event", line, strict=False)] == []
    definitions = json.loads((SCHEMAS / "event.schema.json").read_text())["$defs"]
    described = set(definitions["ReplicaOutcome"]["properties"])
    assert set().union(*lines[-1]["outcomes"]) == described


def test_a_document_that_does_not_match_is_detected() -> None:
    """The check finds a missing key, a wrong type and an undescribed key."""
    plan = json.loads(saved_plan_json(PLANS["partial"]))
    assert problems("plan", {**plan, "news": 1}) != []
    assert problems("plan", {**plan, "actions": [{**plan["actions"][0], "wanted": "3"}]}) != []
    assert problems("plan", {key: value for key, value in plan.items() if key != "summary"}) != []
