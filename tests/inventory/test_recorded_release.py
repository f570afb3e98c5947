"""What the last release left in a cluster is read: reprs, notes in the metadata of jobs, failures, and a saved plan.

Recorded from a Ray 2.60 on which only that release had run.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_dashboard import JOBS, FakeDashboard, answer
from ray_keys import Keys

from fleetctl.agent import cluster, lock, records
from fleetctl.documents.inventory import Inventory, Replica
from fleetctl.documents.loading import load_plan
from fleetctl.errors import DocumentError
from fleetctl.inventory import records as inventory_records

RECORDED = Path(__file__).parent / "recorded"


@pytest.fixture
def seen(dashboard: FakeDashboard, read: Callable[..., Inventory]) -> Inventory:
    bodies = json.loads((RECORDED / "last_release.json").read_text())
    dashboard.dead = bodies.pop("dead")
    for job, text in bodies.pop("logs").items():
        log = json.dumps({"logs": text}).encode()
        dashboard.behaviours[f"/api/jobs/{job}/logs"] = partial(answer, status=200, body=log)
    dashboard.bodies.update(bodies)
    return read("compat")


def test_a_run_of_this_release_makes_records_of_all_its_notes(
    seen: Inventory, dashboard: FakeDashboard, read: Callable[..., Inventory], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = Keys().install(monkeypatch, records, lock)
    monkeypatch.setattr(records, "ray", SimpleNamespace(
        get_runtime_context=lambda: SimpleNamespace(get_job_id=lambda: "2c010000")))
    monkeypatch.setattr(cluster, "alive_nodes", dict)
    for job in dashboard.bodies["jobs"]:
        keys.put(f"{records.JOB_KEY}{job['submission_id']}".encode(), json.dumps(job).encode(), namespace=b"job")
    records.adopt_old_notes()
    for key in keys.list(f"{records.JOB_KEY}{records.ROW}".encode(), namespace=b"job"):
        name = key.decode().removeprefix(records.JOB_KEY)
        row = json.loads(keys.get(key, namespace=b"job") or b"")
        dashboard.records.rows[name] = {"submission_id": name, **row}
    monkeypatch.setattr(inventory_records, "FEW_JOBS", 1)
    del dashboard.requests[:]
    again = read("compat")
    assert JOBS not in [one.path for one in dashboard.requests]
    [warning] = set(again.warnings).difference(seen.warnings)
    assert "was not read" in warning
    assert (again.nodes, again.failures) == (seen.nodes, seen.failures)
    ours, theirs = ([one.model_copy(update={"tool_version": None}) for one in each.replicas] for each in (again, seen))
    assert ours == theirs, "but for the versions of runs that are not known"


def replica(seen: Inventory, model: str, replica_id: int = 0) -> Replica:
    [found] = [one for one in seen.replicas if (one.model, one.replica_id) == (model, replica_id)]
    return found


def test_its_replicas_are_read_at_their_levels_with_their_members(seen: Inventory) -> None:
    [warning] = seen.warnings
    assert (seen.complete, warning.partition(":")[0]) == (True, "a, b, c, d, e each report 0 of 2 cards")
    assert {(one.model, one.replica_id) for one in seen.replicas if one.level == "WARM"} == {
        ("warm", 0), ("warm", 1), ("warmgang", 0)}
    assert {one.fleet for one in seen.replicas} == {"compat", "spare", "slow"}
    gang = replica(seen, "gang")
    assert [(one.role, one.rank, one.gpus) for one in gang.members] == [("Leader", 0, 1250), ("Worker", 1, 1250)]
    assert len({one.node_id for one in gang.members}) == 2
    warm = replica(seen, "warmgang")
    assert [(one.gpus, one.memory > 0) for one in warm.members] == [(0, True)] * 2
    assert all(one.weights and one.weights.artifact for one in (*gang.members, *warm.members))


def test_a_replica_that_is_starting_is_planned_where_the_log_of_its_apply_says(seen: Inventory) -> None:
    starting = replica(seen, "slow")
    assert (starting.state, starting.fleet) == ("PENDING_CREATION", "slow")
    assert starting.spec_hash
    assert [(one.gpus, one.port) for one in starting.members] == [(1250, None)]


def test_what_a_reload_noted_counts_more_than_the_repr(seen: Inventory) -> None:
    reloaded, failed = replica(seen, "inplace"), replica(seen, "badreload")
    noted = {row["model"]: row for one in json.loads((RECORDED / "last_release.json").read_text())["jobs"]
             for row in json.loads(one["metadata"].get("reloads", "[]"))}
    assert reloaded.spec_hash == noted["inplace"]["specHash"]
    assert reloaded.members[0].weights
    assert reloaded.members[0].weights.artifact == noted["inplace"]["weights"][0]["artifact"]
    assert failed.spec_hash == "unknown", "the engine was asked, and did not load them"
    assert [one.code for one in seen.failures if one.reload] == ["RELOAD_FAILED"]


def test_its_notes_about_nodes_are_in_force(seen: Inventory) -> None:
    nodes = {node.name: node for node in seen.nodes}
    assert {name for name, node in nodes.items() if node.state == "DRAINING"} == {"d"}
    assert {name: node.cordon.reason for name, node in nodes.items() if node.cordon} == {"c": "new driver"}
    assert {name for name, node in nodes.items() if node.uncordoned_at} == {"b"}
    assert {name: node.slots.value for name, node in nodes.items() if node.slots} == {"b": 9}
    assert {name for name, node in nodes.items() if node.unfetched} == {"a", "b"}


def test_the_replicas_that_its_running_eviction_ends_are_draining(seen: Inventory) -> None:
    assert [(one.model, one.replica_id) for one in seen.replicas if one.draining] == [("evictme", 0)]


def test_its_failures_have_their_reason_node_and_card(seen: Inventory) -> None:
    failures = {one.model: one for one in seen.failures}
    assert {name: (one.code, one.restarts) for name, one in failures.items()} == {
        "fails": ("ENGINE_EXITED", 0), "card": ("ENGINE_EXITED", 0), "late": ("ENGINE_EXITED", 1),
        "badreload": ("RELOAD_FAILED", 0)}
    assert failures["card"].gpu_uuids == ["GPU-v1-0"]
    assert all(one.at and one.spec_hash and one.node_ids for one in failures.values())


def test_its_saved_plan_is_refused_and_the_message_says_what_to_do() -> None:
    with pytest.raises(DocumentError) as why:
        load_plan((RECORDED / "last_release_plan.json").read_text(), "x.fleetplan")
    assert why.value.message == "x.fleetplan has formatVersion 1.1, and this fleetctl reads 2.x"
    assert why.value.hint == "use the fleetctl that wrote it, or write it again with this one"
