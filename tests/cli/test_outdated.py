"""How outdated replicas differ from the file, from the logs of their applies: shown, and never saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cluster_stand_in import ClusterStandIn, event

from fleetctl.apply.prepare import apply_record
from fleetctl.documents.canonical import plan_id
from fleetctl.documents.inventory import Inventory
from fleetctl.fleetfile.load import load_fleet
from fleetctl.fleetfile.resolved import hash_of_shape
from fleetctl.planner.options import PlanFacts, PlanOptions
from fleetctl.planner.plan import make_plan

FLEET = """\
apiVersion: fleetctl/v1
kind: Fleet
metadata: {name: lab}
spec:
  models:
  - key: org/one
    replicas: 2
    workers:
    - name: main
      members: [{resources: {gpus: 1}, engine: {command: [serve], args: [--len, "8192"]}}]
"""
DIFFERS = "workers.main.members[0].engine.args: --len 4096 -> --len 8192"
OLD = FLEET.replace("8192", "4096")
NEXT_STEP = "to replace an outdated one: `fleetctl replace org/one -f {}`, which starts each new replica first"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "one.yaml"
    path.write_text(FLEET)
    return path


def hash_of(text: str) -> str:
    return load_fleet(["-"], stdin=text.encode).models[0].spec_hash


def record_apply(cluster: ClusterStandIn, text: str, name: str = "then", **changes: Any) -> None:
    """Add the job and log of an apply of the fleet in `text`."""
    fleet = load_fleet(["-"], stdin=text.encode)
    nodes = [{"id": "a", "name": "a", "resources": {"total": {"GPU": 8, "CPU": 8, "memory": 1 << 40}}}]
    seen = Inventory.model_validate({"observedAt": "2026-03-04T12:00:00Z", "source": "x", "nodes": nodes})
    plan = make_plan(fleet, seen, PlanOptions(), PlanFacts(tool_version="0"))
    job = cluster.add_job(name, verb="apply", fleet="lab", create="2")
    job.status, job.log, job.steps = "SUCCEEDED", event(0, "planAccepted", **{**apply_record(plan), **changes}), []


def add_replicas(cluster: ClusterStandIn, *hashes: str, **more: Any) -> None:
    for number, spec_hash in enumerate(hashes):
        cluster.add_replica("org/one", number, cluster.nodes[0]["node_id"], gpus=10_000, spec_hash=spec_hash, **more)


def test_no_log_is_searched_for_a_reload_with_unknown_result(cli, cluster: ClusterStandIn, file: Path) -> None:
    add_replicas(cluster, hash_of(OLD))
    note = {"model": "org/one", "replicaId": 0, "actorId": cluster.actors[-1]["actor_id"], "specHash": hash_of(OLD),
            "at": "2026-03-04T12:00:00Z", "asked": True}
    cluster.add_job("then", verb="apply", fleet="lab", namespace="fleet", create="2", reloads=json.dumps([note]))
    result = cli("plan", "-f", file)
    assert "its weights are unknown" in result.out
    assert not [path for _, path in cluster.requests if path.endswith("/logs")]


def test_a_plan_shows_differences_as_diff_does_and_the_next_command(cli, cluster: ClusterStandIn, file: Path) -> None:
    add_replicas(cluster, hash_of(OLD), hash_of(OLD))
    record_apply(cluster, OLD)
    result = cli("plan", "-f", file)
    assert result.code == 0
    assert "* org/one 2 2 - - 2 of 2 live, 2 outdated" in " ".join(result.out.split())
    note, differs = result.out[result.out.index("\nDrift: 2"):].split("  org/one/0-1: outdated: runs spec ")
    assert " ".join(note.split()).endswith(NEXT_STEP.format(file))
    assert differs.splitlines()[1].strip() == DIFFERS
    assert result.out.splitlines()[-1] == (
        "Plan: 0 to create, 0 blocked, 0 held, 2 outdated, 0 to remove (fleetctl never removes)")
    assert cluster.writes() == []


def test_the_differences_are_those_from_the_replicas_own_variant(cli, cluster: ClusterStandIn, file: Path) -> None:
    """One whose variant has left the file has no spec there that it could be compared with."""
    def text(length: str, *names: str) -> str:
        ways = "".join(
            f"    - name: {name}\n      workers:\n      - name: main\n        members: [{{resources: {{gpus: {gpus}}}, "
            f'engine: {{command: [serve], args: [--len, "{length}{gpus}"]}}}}]\n'
            for gpus, name in enumerate(("big", "small", "gone"), 1) if name in names)
        return FLEET.partition("    workers:")[0] + "    variants:\n" + ways

    old = load_fleet(["-"], stdin=text("4", "big", "small", "gone").encode).models[0].variants
    for number, one in enumerate(old):
        cluster.add_replica("org/one", number, cluster.nodes[0]["node_id"], gpus=10_000, spec_hash=one.spec_hash,
                            variant=one.variant)
        record_apply(cluster, text("4", one.variant), f"then-{number}")
    file.write_text(text("8", "big", "small"))
    plan = json.loads(cli("plan", "-f", file, "--format", "json").out)
    assert {row["variant"]: row["changes"] for row in plan["drift"]} == {
        "big": ["workers.main.members[0].engine.args: --len 41 -> --len 81"],
        "small": ["workers.main.members[0].engine.args: --len 42 -> --len 82"], "gone": None}
    shown = cli("status", "-f", file).out
    assert "42 -> --len 82" in shown
    assert "--len 43" not in shown


def test_a_spec_hash_of_an_older_release_is_current_if_the_spec_is_written_the_same_way(
    cli, cluster: ClusterStandIn, file: Path
) -> None:
    engine = {"command": ["serve"], "args": ["--len", "8192"]}
    member = {"resources": {"gpus": 10_000}, "nodeSelector": {"pool": "in(l4,a100)"}, "engine": engine}
    shape = {"workers": [{"name": "main", "copies": 1, "members": [member]}], "placement": {}}
    explicit = FLEET.replace("name: main", "name: main\n      copies: 1").replace(
        "gpus: 1}", 'gpus: 1}, nodeSelector: {pool: "in(l4,a100)"}')
    old_hash = hash_of_shape(shape)
    assert old_hash != hash_of(explicit)
    add_replicas(cluster, old_hash, hash_of(explicit))
    record_apply(cluster, FLEET, shapes={old_hash: shape}, models=[
        {"key": "org/one", "specHash": old_hash, "wanted": 2,
         "lifecycle": {"startupTimeout": 1, "schedulingTimeout": 1, "restartMax": 1, "restartBackoff": 1}}])
    file.write_text(explicit)
    assert "nothing to do: 2 of 2 live" in " ".join(cli("plan", "-f", file).out.split())
    assert "utdated" not in cli("status", "-f", file).out
    file.write_text(explicit.replace("in(l4,a100)", "in(a100, l4)"))
    result = " ".join(cli("plan", "-f", file).out.split())
    assert "2 of 2 live, 1 outdated" in result
    assert "written differently, with the same meaning" in result


def test_looked_up_differences_are_shown_and_not_saved(
    cli, cluster: ClusterStandIn, file: Path, tmp_path: Path
) -> None:
    add_replicas(cluster, hash_of(OLD))
    saved, again = tmp_path / "a.fleetplan", tmp_path / "b.fleetplan"
    snapshot = tmp_path / "snapshot.json"
    snapshot.write_text(cli("inventory", "--format", "json").out)
    record_apply(cluster, OLD)
    report = tmp_path / "plan.md"
    printed = json.loads(cli("plan", "-f", file, "--format", "json", "--out", saved,
                             "--report", f"markdown={report}").out)
    assert printed["drift"][0]["changes"] == [DIFFERS]
    assert printed["masked"] is True
    whole = json.loads(saved.read_text())
    assert whole["drift"][0]["changes"] is None
    assert whole["planId"] == plan_id(whole) == printed["planId"]
    assert "8192" in report.read_text()
    bare = json.loads(cli("plan", "-f", file, "--inventory", snapshot, "--format", "json", "--out", again).out)
    assert bare["drift"][0]["changes"] is None
    assert "masked" not in bare
    assert {**json.loads(again.read_text()), "inventory": 0, "expiresAt": 0, "planId": 0} == {
        **whole, "inventory": 0, "expiresAt": 0, "planId": 0}


def test_a_missing_record_is_reported(cli, cluster: ClusterStandIn, file: Path) -> None:
    add_replicas(cluster, hash_of(OLD))
    record_apply(cluster, FLEET.replace("8192", "1024"))
    assert "the spec it was started with is no longer recorded" in cli("plan", "-f", file).out
    cluster.jobs.clear()
    assert "the spec it was started with is no longer recorded" in cli("plan", "-f", file).out


def test_an_unreadable_list_of_applies_is_reported_and_the_plan_still_made(
    cli, cluster: ClusterStandIn, file: Path
) -> None:
    add_replicas(cluster, hash_of(OLD))
    cluster.refusals["GET", "/api/jobs/"] = [(404, "a proxy lets nothing else pass")] * 10
    result = cli("plan", "-f", file, "--detailed-exitcode")
    assert result.code == 2
    assert "the spec it was started with could not be looked up: " in result.out


def test_a_changed_masked_value_is_reported_without_the_value(cli, cluster: ClusterStandIn, file: Path) -> None:
    secret = FLEET.replace("command: [serve]", 'command: [serve], env: {TOKEN: "hush-1"}')
    file.write_text(secret.replace("hush-1", "hush-2"))
    add_replicas(cluster, hash_of(secret))
    record_apply(cluster, secret)
    out = cli("plan", "-f", file).out
    assert "engine.env: a value differs (values are not recorded)" in out
    assert "hush" not in out


def test_nothing_is_looked_up_if_nothing_is_outdated(cli, cluster: ClusterStandIn, file: Path) -> None:
    add_replicas(cluster, hash_of(FLEET))
    cli("plan", "-f", file)
    assert not [path for _, path in cluster.requests if path.startswith("/api/jobs") and "/logs" in path]


def test_an_apply_shows_the_differences_before_it_starts(cli, cluster: ClusterStandIn, file: Path) -> None:
    add_replicas(cluster, hash_of(OLD))
    record_apply(cluster, OLD)
    result = cli("apply", "-f", file, "--yes")
    assert result.code == 0
    assert DIFFERS in result.out
    assert [job for job in cluster.jobs if job != "then"]


def test_status_of_a_fleet_names_outdated_replicas_and_their_differences(
    cli, cluster: ClusterStandIn, file: Path
) -> None:
    add_replicas(cluster, hash_of(FLEET), hash_of(OLD))
    cluster.actors[1]["num_restarts"] = "3"
    record_apply(cluster, OLD)
    result = cli("status", "-f", file)
    assert result.code == 0
    rows = {line.split()[0]: line for line in result.out.splitlines() if line.startswith("org/one/")}
    assert "ready, 3 of 5 restarts, outdated" in rows["org/one/1"]
    assert "outdated" not in rows["org/one/0"]
    assert DIFFERS in result.out
    assert NEXT_STEP.format(file) in " ".join(result.out.split())
    assert result.out.splitlines()[-1] == "Replicas: 2 ready; 1 outdated"
    assert cluster.writes() == []


def test_status_without_a_file_does_not_compare_specs(cli, cluster: ClusterStandIn, file: Path) -> None:
    add_replicas(cluster, hash_of(OLD))
    assert "outdated" not in cli("status").out


def test_status_does_not_suggest_replacing_surplus_replicas(cli, cluster: ClusterStandIn, file: Path) -> None:
    add_replicas(cluster, hash_of(OLD), hash_of(OLD), hash_of(OLD))
    out = cli("status", "-f", file).out
    assert "3 outdated" in out
    assert "to replace" not in out


def test_a_lost_replica_is_not_called_outdated(cli, cluster: ClusterStandIn, file: Path) -> None:
    add_replicas(cluster, hash_of(OLD))
    cluster.nodes[0]["state"] = "DEAD"
    assert "outdated" not in cli("status", "-f", file).out
