"""`fleetctl doctor`: each fault is found, with a command that can be run; a healthy cluster is reported as such."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cluster_stand_in import ClusterStandIn, event, summary
from published_schemas import validator_of

from fleetctl.cli import process
from fleetctl.doctor import cluster, replicas
from fleetctl.doctor.cluster import MANY_ROWS
from fleetctl.doctor.evidence import Evidence
from fleetctl.documents.diagnosis import Diagnosis
from fleetctl.documents.inventory import Inventory, Replica
from fleetctl.inventory import vitals
from fleetctl.inventory.autoscaler import STATUS_PATH

GIB = 1 << 30
ORPHAN = {"pid": 41, "began": 7, "command": "vllm serve", "model": "org/one:1", "replicaId": "3", "container": ""}
LEFT_CONTAINER = {**ORPHAN, "pid": 99, "container": "0123456789ab", "replicaId": ""}
LOST = {"number": "3", "uuid": "", "code": "CARD_LOST", "message": "the driver counts it and cannot open it (lost)"}
DISK = {"path": "/ray", "total": 100 * GIB, "free": 3 * GIB}


def answer_examination(cluster: ClusterStandIn, *locks: dict[str, Any], **answers: Any) -> None:
    """Let the nodes answer an examination: `answers` = the findings on node-a; the other nodes have none."""
    first = cluster.nodes[0]["node_id"]

    def respond(request: dict[str, Any]) -> list[tuple[str, str]]:
        log = event(0, "version", "agent", version="1.0")
        for node_id in request["nodes"]:
            log += event(1, "nodeExamined", "", nodeId=node_id, **(answers if node_id == first else {}))
        return [("SUCCEEDED", log + event(2, "locksLeft", "", locks=list(locks)) + summary(3))]

    cluster.on_submit = respond


def cards(used_mib: int, number: int = 8) -> list[dict[str, Any]]:
    return [{"index": index, "uuid": f"GPU-{index}", "name": "H100", "memoryTotal": 81920,
             "memoryUsed": used_mib if index == 2 else 3} for index in range(number)]


def run_that_failed(cluster: ClusterStandIn) -> None:
    cluster.add_job("fleetctl-apply-00000000000a", verb="apply", fleet="lab").log = event(
        0, "runSummary", "no Python interpreter with ray was found on the head node", outcomes=[], exitCode=1)
    cluster.jobs["fleetctl-apply-00000000000a"].status = "FAILED"


def run_that_lasts(cluster: ClusterStandIn, status: str) -> None:
    log = event(0, "version", "agent") + summary(1)
    cluster.add_job("fleetctl-apply-00000000000b", ("SUCCEEDED", log), verb="apply", fleet="lab").status = status


def replica_of(cluster: ClusterStandIn, number: int = 0, **more: Any) -> None:
    cluster.add_replica("org/one:1", number, cluster.nodes[0]["node_id"])
    cluster.actors[-1].update(more)


def replica_elsewhere(cluster: ClusterStandIn) -> None:
    replica_of(cluster)
    cluster.actors[-1]["repr_name"] = cluster.actors[-1]["repr_name"].replace("10.0.0.7", "10.0.0.8")


def old_replica(cluster: ClusterStandIn) -> None:
    replica_of(cluster)
    job = cluster.add_job("fleetctl-apply-00000000000c", verb="apply", fleet="lab", toolVersion="0.0.9")
    job.status, job.driver_id = "SUCCEEDED", cluster.actors[-1]["job_id"]


def leaked_group(cluster: ClusterStandIn) -> None:
    replica_of(cluster, 1)
    for number in (0, 1):
        bundle = {"node_id": cluster.nodes[0]["node_id"], "unit_resources": {"GPU": 2.0}}
        cluster.groups.append({"name": f"ModelActor:org/one:1:{number}", "placement_group_id": f"{number}a",
                               "bundles": [bundle], "state": "CREATED"})


def set_node_a(cluster: ClusterStandIn, **values: Any) -> None:
    """Set what the summary has of the first node; if these are cards, the other nodes report theirs, too."""
    for row in cluster.nodes[1:] if "gpus" in values else ():
        cluster.of_node[row["node_id"]] = {"gpus": [
            {**card, "uuid": f"{card['uuid']}-{row['node_name']}"} for card in cards(3)]}
    cluster.of_node[cluster.nodes[0]["node_id"]] = values


def shared_card(cluster: ClusterStandIn) -> None:
    for row in cluster.nodes[:2]:
        shared, *own = cards(3)
        own = [{**card, "uuid": f"{card['uuid']}-{row['node_name']}"} for card in own]
        cluster.of_node[row["node_id"]] = {"gpus": [shared, *own]}


def ended_cordon(cluster: ClusterStandIn) -> None:
    cluster.add_job("n", ("SUCCEEDED", ""), verb="cordon", nodeName="node-a", until="2026-01-01T00:00:00Z",
                    reason="fan").step()


ARTIFACT = "1" * 64


def weights_of(cluster: ClusterStandIn, **more: Any) -> str:
    """Let a replica on the first node serve weights; return the node's id."""
    replica_of(cluster)
    described = json.loads(cluster.actors[-1]["repr_name"])
    described["members"][0]["weights"] = {"artifact": ARTIFACT, "view": None, "whole": True, "port": 7000, **more}
    cluster.actors[-1]["repr_name"] = json.dumps(described)
    return str(cluster.nodes[0]["node_id"])


def unused_caches(cluster: ClusterStandIn) -> None:
    replica_of(cluster)
    described = json.loads(cluster.actors[-1]["repr_name"])
    described["members"][0]["caches"] = {"key": "2" * 64, "trouble": "engine.version (x) exited with code 1"}
    cluster.actors[-1]["repr_name"] = json.dumps(described)


def wrong_weights(cluster: ClusterStandIn, at: str = "2026-03-04T13:00:00Z", **more: Any) -> None:
    """Let the first node note a wrong file after the replica there had become ready."""
    node_id = weights_of(cluster)
    note = {"artifact": ARTIFACT, "view": None, "file": "model-00001.safetensors", "piece": 3, "at": at,
            "reason": "its content has changed", "now": "fetched", "trouble": "", **more}
    cluster.log_files[node_id, f"fleetctl-wrong-{node_id}-{ARTIFACT}.json"] = json.dumps(note)


def long_job_list(cluster: ClusterStandIn) -> None:
    for number in range(MANY_ROWS + 1):
        job = cluster.add_job(f"train-{number}")
        job.status, job.body["metadata"] = "SUCCEEDED", {"tool": "ci"}


FAULTS: dict[str, tuple[Callable[[ClusterStandIn], object], str, str]] = {
    "NO_TOKEN_NEEDED": (lambda it: setattr(it, "is_open", True), "cluster", "dashboard"),
    "RAY_TOO_OLD": (lambda it: setattr(it, "ray_version", "2.40.1"), "cluster", "Ray"),
    "CARD_SHARED": (shared_card, "node", "GPU-0"),
    "NOT_READ_WHOLE": (
        lambda it: it.refusals.update({("GET", "/api/version"): [(500, "")] * 9}), "cluster", "inventory"),
    "JOB_LIST_LONG": (long_job_list, "cluster", "jobs"),
    "AUTOSCALER_SILENT": (
        lambda it: it.data_at.update({STATUS_PATH: {"clusterStatus": {"time": 1.7e9}}}), "cluster", "autoscaler"),
    "AGENT_NOT_STARTED": (run_that_failed, "cluster", "fleetctl-apply-00000000000a"),
    "RUN_LASTS": (lambda it: run_that_lasts(it, "RUNNING"), "cluster", "fleetctl-apply-00000000000b"),
    "RUN_NOT_STARTED": (lambda it: run_that_lasts(it, "PENDING"), "cluster", "fleetctl-apply-00000000000b"),
    "LEAKED_GROUP": (leaked_group, "cluster", "ModelActor:org/one:1:0"),
    "GPU_COUNT": (lambda it: set_node_a(it, gpus=cards(3, 9)), "node", "node-a"),
    "CARDS_UNREPORTED": (lambda it: set_node_a(it, gpus=cards(3, 7)), "node", "node-a"),
    "CARD_IN_USE": (lambda it: set_node_a(it, gpus=cards(20480)), "node", "node-a card 2"),
    "WEIGHTS_WRONG": (wrong_weights, "node", "node-a"),
    "DISK_FULL": (lambda it: set_node_a(it, disk={"/": {"total": 100, "free": 4}}), "node", "node-a"),
    "CORDON_ENDED": (ended_cordon, "node", "node-a"),
    "REPLICA_LOST": (lambda it: (replica_of(it), it.nodes[0].update(state="DEAD")), "replica", "org/one:1/0"),
    "CLAIM_REFUSED": (replica_elsewhere, "replica", "ModelActor:org/one:1:0"),
    "REPLICA_RESTARTS": (lambda it: replica_of(it, num_restarts="4"), "replica", "org/one:1/0"),
    "NO_LONGER_READY": (lambda it: (replica_of(it), it.stop_answering(0)), "replica", "org/one:1/0"),
    "CACHES_UNUSED": (unused_caches, "replica", "org/one:1/0"),
    "AGENT_OLD": (old_replica, "replica", "org/one:1/0"),
    "LOCK_LEFT": (lambda it: answer_examination(it, {"fleet": "lab", "number": 4, "job": "j9"}), "cluster", "lab"),
    "NODE_SILENT": (lambda it: answer_examination(it, trouble="no worker answered"), "node", "node-a"),
    "ORPHAN_ENGINE": (lambda it: answer_examination(it, orphans=[ORPHAN, {**ORPHAN, "pid": 42}]), "node", "node-a"),
    "ORPHAN_CONTAINER": (lambda it: answer_examination(it, orphans=[LEFT_CONTAINER]), "node", "node-a"),
    "CARD_LOST": (lambda it: answer_examination(it, cards=[LOST]), "node", "node-a card 3"),
    "CARD_FAULTY": (
        lambda it: answer_examination(it, cards=[{**LOST, "code": "CARD_FAULTY"}]), "node", "node-a card 3"),
    "CARDS_UNCHECKED": (lambda it: answer_examination(it, driver="NVML: Unknown Error"), "node", "node-a"),
    "ENGINES_NICED": (lambda it: answer_examination(it, limits={"nice": 15}), "node", "node-a"),
    "FEW_OPEN_FILES": (lambda it: answer_examination(it, limits={"openFiles": 1024}), "node", "node-a"),
    "LITTLE_LOCKED_MEMORY": (
        lambda it: answer_examination(it, limits={"lockedMemory": 65536, "rdma": True}), "node", "node-a"),
    "SMALL_SHARED_MEMORY": (
        lambda it: answer_examination(it, sharedMemory={"total": 64 << 20, "free": 64 << 20}), "node", "node-a"),
    "SHARED_MEMORY_FULL": (
        lambda it: answer_examination(it, sharedMemory={"total": 64 << 30, "free": 1 << 30}), "node", "node-a"),
    "SHARED_MEMORY_LEFT": (lambda it: answer_examination(it, sharedMemory={
        "total": 64 << 30, "free": 60 << 30, "left": [{"name": "psm_1", "size": 160 << 20}]}), "node", "node-a"),
    "NODES_NOT_ASKED": (
        lambda it: setattr(it, "on_submit", lambda _: [("FAILED", "no ray here\n")]), "cluster", "agent"),
}
NEED_EXAMINATION = {"LOCK_LEFT", "NODE_SILENT", "ORPHAN_ENGINE", "ORPHAN_CONTAINER", "NODES_NOT_ASKED", "CARD_LOST",
                    "CARD_FAULTY", "CARDS_UNCHECKED", "ENGINES_NICED", "FEW_OPEN_FILES", "LITTLE_LOCKED_MEMORY",
                    "SMALL_SHARED_MEMORY", "SHARED_MEMORY_FULL", "SHARED_MEMORY_LEFT"}


@pytest.mark.parametrize("code", FAULTS)
def test_a_fault_is_found_and_its_command_can_be_run(cli, cluster: ClusterStandIn, code: str) -> None:
    make, area, subject = FAULTS[code]
    answer_examination(cluster)
    assert cli("doctor").code == 0
    make(cluster)
    flags = ["--nodes"] if code in NEED_EXAMINATION else []
    result = cli("doctor", *flags, "--format", "json")
    diagnosis = json.loads(result.out)
    validator_of(Diagnosis).validate(diagnosis)
    [found] = diagnosis["findings"]
    assert (found["code"], found["area"], found["subject"]) == (code, area, subject)
    assert result.code == diagnosis["exitCode"] == int(found["severity"] == "error")
    assert sum(check["findings"] for check in diagnosis["checks"]) == 1
    assert found["advice"] or found["command"]
    text = cli("doctor", *flags).out
    assert f"{code} {subject}: " in " ".join(text.split())
    if found["command"]:
        words = shlex.split(found["command"])
        assert (words[0], cli(*words[1:], typed="n\n").code != 64) == ("fleetctl", True)


@pytest.mark.parametrize("answer", [
    {"limits": {"nice": 0, "oomScoreAdj": 0, "openFiles": None, "lockedMemory": None, "rdma": True}},
    {"limits": {"openFiles": 65535, "lockedMemory": 65536}},
    {"limits": {"nice": -3, "openFiles": 1 << 20, "lockedMemory": 1 << 30, "rdma": True}},
    {"sharedMemory": {"total": 1 << 30, "free": 1 << 29, "left": [{"name": "sem.mp-1", "size": 32}]}}])
def test_a_node_that_gives_engines_what_they_need_is_no_finding(
    cli, cluster: ClusterStandIn, answer: dict[str, Any]
) -> None:
    """Little locked memory only matters beside RDMA, and a semaphore that was left behind is nothing."""
    answer_examination(cluster, **answer)
    assert json.loads(cli("doctor", "--nodes", "--format", "json").out)["findings"] == []


def test_the_advice_names_what_is_to_be_set_and_removed(cli, cluster: ClusterStandIn) -> None:
    answer_examination(cluster, limits={"nice": 15, "oomScoreAdj": 1000}, sharedMemory={
        "total": 64 << 30, "free": 60 << 30, "left": [{"name": f"psm_{i} x", "size": 1 << 20} for i in range(7)]})
    advice = [one["advice"] for one in json.loads(cli("doctor", "--nodes", "--format", "json").out)["findings"]]
    assert "RAY_worker_niceness=0 RAY_worker_oom_score_adjustment=0 in its environment" in advice[0]
    assert advice[1] == f"run there: rm {shlex.join(f'/dev/shm/psm_{i} x' for i in range(5))} ..."


def test_a_silent_autoscaler_is_an_error_for_a_fleet_that_asks_it_for_nodes(
    cli, cluster: ClusterStandIn, tmp_path: Path
) -> None:
    fleet = tmp_path / "fleet.yaml"
    grow = "cluster: {grow: [{name: big, max: 2, node: {cpus: 1, memory: 1Gi, labels: {pool: big}}}]}"
    fleet.write_text(NEEDY.replace("  nodes: [", f"  {grow}\n  nodes: [").replace("replicas: 1", "replicas: 0"))
    for age_s, found in ((30, []), (90, ["AUTOSCALER_SILENT"])):
        cluster.data_at[STATUS_PATH] = {"clusterStatus": {"time": time.time() - age_s}}
        result = cli("doctor", "-f", fleet, "--format", "json")
        findings = json.loads(result.out)["findings"]
        assert ([one["code"] for one in findings], result.code) == (found, len(found))
    assert findings[0]["severity"] == "error"


def test_wrong_weights_are_named_with_node_replica_file_and_piece(cli, cluster: ClusterStandIn) -> None:
    wrong_weights(cluster, now="unfetched", trouble="no source supplied all files")
    [found] = json.loads(cli("doctor", "--format", "json").out)["findings"]
    assert found["message"] == (
        "model-00001.safetensors of weights 111111111111 was not what the index says: piece 3, its content has changed,"
        f" found {found['message'].split('found ')[1].split(';')[0]}; it could not be fetched again: no source supplied"
        " all files; org/one:1/0 may have loaded it")
    assert found["command"] == "fleetctl restart org/one:1/0"
    shown = " ".join(cli("status", "--format", "wide").out.split())
    assert "LOADED BY, PERHAPS" in shown
    for word in ("node-a", "model-00001.safetensors", "org/one:1/0", "could not be fetched again: no source"):
        assert word in shown.partition("LOADED BY, PERHAPS")[2]


def test_every_replica_that_may_have_loaded_wrong_weights_is_in_the_command(cli, cluster: ClusterStandIn) -> None:
    wrong_weights(cluster)
    described = cluster.actors[-1]["repr_name"]
    replica_of(cluster, 1, repr_name=described.replace('"port":7001', '"port":7002'))
    [found] = json.loads(cli("doctor", "--format", "json").out)["findings"]
    assert found["command"] == "fleetctl restart org/one:1/0 org/one:1/1"
    assert found["advice"].startswith("restart them all: ")


def test_a_wrong_file_that_was_fetched_again_is_forgotten_once_no_engine_can_have_loaded_it(
        cli, cluster: ClusterStandIn) -> None:
    wrong_weights(cluster, at="2026-03-04T11:00:00Z")  # before the replica became ready
    assert cli("doctor").code == 0
    assert "LOADED BY" not in cli("status").out


@pytest.mark.parametrize("text", ["", "{", "[]", "5", '{"artifact": "x"}', "[" * 5000])
def test_a_note_that_says_nothing_is_no_finding(cli, cluster: ClusterStandIn, text: str) -> None:
    node_id = weights_of(cluster)
    cluster.log_files[node_id, f"fleetctl-wrong-{node_id}-{ARTIFACT}.json"] = text
    cluster.log_files[node_id, f"fleetctl-wrong-{node_id}-../../x.json"] = text
    assert (cli("doctor").code, cli("status").code) == (0, 0)


def test_a_node_whose_notes_cannot_be_read_is_named(cli, cluster: ClusterStandIn) -> None:
    cluster.answer_of_node[weights_of(cluster)] = 500, '{"result": false, "msg": "no agent", "data": {}}'
    [found] = json.loads(cli("doctor", "--format", "json").out)["findings"]
    assert (found["code"], found["message"]) == (
        "READING", "node-a: its notes about wrong weights are unknown: /api/v0/logs answered 500: no agent")


def test_the_status_says_since_when_weights_are_verified(cli, cluster: ClusterStandIn) -> None:
    node_id = weights_of(cluster)
    assert "verified" not in cli("status", "--format", "wide").out
    cluster.log_files[node_id, f"fleetctl-cold-{node_id}-{ARTIFACT}.json"] = '{"verified": "2026-03-04T12:30:00Z"}'
    assert "verified since 2026-03-04T12:30:00Z" in " ".join(cli("status", "--format", "wide").out.split())
    [replica] = json.loads(cli("status", "--format", "json").out)["replicas"]
    assert replica["members"][0]["weights"]["verified"] == "2026-03-04T12:30:00Z"
    cluster.actors.clear()
    weights_of(cluster, verified="2026-03-04T11:00:00Z")
    assert "verified since 2026-03-04T11:00:00Z" in " ".join(cli("status", "--format", "wide").out.split())


FULL_DISKS = [{"path": "/logs", "total": 100, "free": 1, "device": 1}, {"path": "/logs/ray", "total": 100, "free": 1,
              "device": 1}, {"path": "/tmp", "total": 100, "free": 1, "device": 2}]


@pytest.mark.parametrize(("disks", "named"), [
    (FULL_DISKS, ["/logs", "/tmp"]),
    ([{**disk, "device": None} for disk in FULL_DISKS], ["/logs"]),
], ids=["by device", "an agent that reports no device"])
def test_each_full_disk_is_named_once_even_if_two_have_the_same_size(
        cli, cluster: ClusterStandIn, disks: list[dict[str, Any]], named: list[str]) -> None:
    set_node_a(cluster, disk={"/": {"total": 100, "free": 1}})
    answer_examination(cluster, disks=disks)
    found = json.loads(cli("doctor", "--nodes", "--format", "json").out)["findings"]
    assert [one["message"].split(" is ")[0] for one in found] == [f"the disk of {path}" for path in named]


def failed_on_node_a(cluster: ClusterStandIn, *uuids: str) -> None:
    set_node_a(cluster, gpus=cards(3))
    for model in ("org/x", "org/y", "org/z"):
        cluster.add_failure(model, cluster.nodes[0]["node_id"], "s", "ECC error", fleet="other", cards=uuids)


@pytest.mark.parametrize(("code", "make"), [
    ("CORDON_ENDED", ended_cordon), ("NODE_COOLING", failed_on_node_a),
    ("CARD_COOLING", lambda it: failed_on_node_a(it, "GPU-2"))])
def test_running_the_command_of_a_finding_about_a_node_resolves_it(
    cli, cluster: ClusterStandIn, fits: Path, code: str, make: Callable[[ClusterStandIn], object]
) -> None:
    def command() -> str | None:
        found = json.loads(cli("doctor", "-f", fits, "--format", "json").out)["findings"]
        return next((one["command"] for one in found if one["code"] == code), None)

    make(cluster)
    typed = shlex.split(command() or "")
    assert typed[:2] == ["fleetctl", "uncordon"]
    assert cli(*typed[1:]).code == 0
    assert command() is None


def test_a_cooling_card_is_named_beside_the_waiting_model(cli, cluster: ClusterStandIn, fleet_file: Path) -> None:
    failed_on_node_a(cluster, "GPU-2")
    result = json.loads(cli("doctor", "-f", fleet_file, "--format", "json").out)
    [found] = [one for one in result["findings"] if one["area"] == "node"]
    assert (found["code"], found["subject"], found["command"]) == (
        "CARD_COOLING", "card 2 on node-a", "fleetctl uncordon node-a")
    assert "3 x ENGINE_EXITED: ECC error (node-a, each time on card GPU-2)" in found["message"]
    assert "card 2 on node-a" in " ".join(cli("status", "-f", fleet_file).out.split())


def test_the_processes_on_a_card_are_named_with_their_memory(cli, cluster: ClusterStandIn) -> None:
    used = cards(20480)
    used[2]["processesPids"] = [{"pid": 4242, "gpuMemoryUsage": 20000}]
    set_node_a(cluster, gpus=used)
    [found] = json.loads(cli("doctor", "--format", "json").out)["findings"]
    assert found["message"].startswith("20Gi of 80Gi are in use by process 4242, beyond what Ray has granted on it")
    assert "nvidia-smi" not in found["advice"]


def test_a_warning_that_is_not_about_unread_parts_has_its_own_code() -> None:
    at = "2026-03-04T12:00:00Z"
    seen = Inventory(observed_at=at, source="t", complete=False, unread=["no actors"], warnings=["no actors", "odd"])
    assert [(one.code, one.severity, one.message) for one in cluster.check_reading(Evidence(at, seen=seen))] == [
        ("NOT_READ_WHOLE", "error", "no actors"), ("READING", "warning", "odd")]
    older = seen.model_copy(update={"unread": []})
    assert {one.code for one in cluster.check_reading(Evidence(at, seen=older))} == {"NOT_READ_WHOLE"}


def test_a_warm_replica_is_neither_lost_nor_restarted_too_often() -> None:
    at = "2026-03-04T12:00:00Z"

    def codes(**more: Any) -> list[str]:
        one = Replica(model="m", replica_id=0, fleet="lab", restarts=9, **more)
        evidence = Evidence(at, seen=Inventory(observed_at=at, source="t", replicas=[one]))
        return [one.code for check in (replicas.check_lost, replicas.check_restarts) for one in check(evidence)]

    for state in ("ALIVE", "RESTARTING"):
        assert (codes(state=state), codes(state=state, level="WARM")) == (["REPLICA_RESTARTS"], [])
    assert (codes(constructed=False), codes(constructed=False, level="WARM")) == (["REPLICA_LOST"], [])


@pytest.mark.parametrize(("answer", "code"), [
    ((401, ""), "CLUSTER_REFUSED"), ((404, "no"), "NOT_READ_WHOLE")])
def test_unread_parts_are_reported_and_nothing_is_removed(
    cli, cluster: ClusterStandIn, answer: tuple[int, str], code: str
) -> None:
    leaked_group(cluster)
    part = "/" if code == "CLUSTER_REFUSED" else "/api/v0/actors"
    cluster.refusals["GET", part] = [answer] * 99
    result = cli("doctor", "--fix", "--yes", "--format", "json")
    diagnosis = json.loads(result.out)
    assert (result.code, {one["code"] for one in diagnosis["findings"] if one["severity"] == "error"}) == (1, {code})
    [groups] = [check for check in diagnosis["checks"] if "placement group" in check["name"]]
    assert groups["skipped"].startswith("the cluster could not be read")
    assert cluster.writes() == []


def test_an_unreachable_cluster_is_the_only_finding(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETCTL_ADDRESS", "http://127.0.0.1:9")
    diagnosis = json.loads(cli("doctor", "--nodes", "--format", "json").out)
    assert [one["code"] for one in diagnosis["findings"]] == ["CLUSTER_UNREACHABLE"]
    assert {check["skipped"] for check in diagnosis["checks"][1:19]} == {"the cluster could not be read"}


def test_a_list_of_jobs_that_does_not_answer_is_a_finding_of_its_own(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vitals, "JOBS_S", 0.0)
    diagnosis = json.loads(cli("doctor", "--format", "json").out)
    [found] = diagnosis["findings"]
    assert (found["code"], found["severity"]) == ("JOB_LIST_UNREAD", "error")
    assert "`fleetctl prune -f FLEET --runs`" in found["advice"], "no file was given"
    assert sum(check["skipped"] is None for check in diagnosis["checks"]) > 10, "the other checks are made"


def test_without_an_address_the_finding_says_how_to_give_one(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLEETCTL_ADDRESS")
    result = cli("doctor")
    assert (result.code, "--address" in result.out) == (1, True)


def test_a_wrong_clock_is_reported_with_its_direction(
    cli, cluster: ClusterStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "now_text", lambda: "2020-01-01T00:00:00Z")
    result = cli("doctor")
    assert result.code == 0
    assert "CLOCK_SKEW clock: this machine's clock is" in result.out
    assert "behind the cluster's" in " ".join(result.out.split())


def test_a_cluster_that_does_not_tell_its_time_is_reported(cli, cluster: ClusterStandIn) -> None:
    cluster.ahead_s = None
    result = cli("doctor")
    assert (result.code, "CLOCK_UNKNOWN clock: the dashboard's answers do not tell the time" in result.out) == (0, True)


def test_the_question_for_a_token_carries_no_credential(
    cli, cluster: ClusterStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.is_open = True
    monkeypatch.setenv("RAY_AUTH_TOKEN", "t0ken")
    monkeypatch.setenv("FLEETCTL_HEADERS", '{"X-Key": "k3y"}')
    result = cli("doctor")
    assert (result.code, "NO_TOKEN_NEEDED" in result.out) == (0, True)
    bare = [request for request, headers in zip(cluster.requests, cluster.headers, strict=True)
            if not {"authorization", "x-key"} & set(headers)]
    assert bare == [("GET", "/api/v0/nodes")]


@pytest.mark.parametrize("answer", [(200, "<html>login</html>"), (200, "{}"), (403, ""), (302, ""), (0, "")])
def test_a_login_in_front_is_not_taken_for_an_open_cluster(
    cli, cluster: ClusterStandIn, monkeypatch: pytest.MonkeyPatch, answer: tuple[int, str]
) -> None:
    ask = cluster.answer
    monkeypatch.setattr(cluster, "answer", lambda method, path, query, body: (
        answer if query.get("limit") == "1" else ask(method, path, query, body)))
    assert cli("doctor").out.splitlines()[-1] == "no problems found: 22 checks"


def test_a_healthy_cluster_has_no_findings_and_receives_only_get_requests(
    cli, cluster: ClusterStandIn, fits: Path
) -> None:
    replica_of(cluster)
    waits = cluster.add_job("fleetctl-apply-00000000000d", verb="standby", fleet="lab")  # it may wait for days
    waits.status = "RUNNING"
    result = cli("doctor", "-f", fits)
    assert (result.code, result.out.splitlines()[-1]) == (0, "no problems found: 24 checks")
    assert cluster.writes() == []


def test_the_fleet_files_are_checked_too(cli, cluster: ClusterStandIn, fleet_file: Path) -> None:
    answer_examination(cluster)
    fleet_file.write_text(fleet_file.read_text().replace("replicas:", "replicaz:"))
    result = cli("doctor", "-f", fleet_file, "--nodes", "--format", "json")
    [first, *_] = json.loads(result.out)["findings"]
    assert (result.code, first["code"], first["area"]) == (1, "FL020", "fleet")
    assert "the fleet files have errors" in result.out


NEEDY = """
apiVersion: fleetctl/v1
kind: Fleet
metadata: {name: lab}
spec:
  nodes: [{selector: {pool: old}, cordon: true}]
  models:
  - key: org/one
    replicas: 1
    workers:
    - name: main
      members:
      - resources: {gpus: 1}
        engine:
          command: [vllm, serve]
          env: {PATH: /opt/bin, TOKEN: {fromNode: HF_TOKEN}}
          workdir: /models
          readiness: {tcp: {port: 8000}}
"""


def test_the_needs_of_an_engine_are_checked_on_each_node_that_may_run_it(
    cli, cluster: ClusterStandIn, tmp_path: Path
) -> None:
    fleet = tmp_path / "needy.yaml"
    fleet.write_text(NEEDY)
    cluster.add_node("cpu-only", gpus=0)
    cluster.add_node("node-c", pool="old")
    needs = [{"kind": "command", "value": "vllm", "path": "/opt/bin"}, {"kind": "variable", "value": "HF_TOKEN"},
             {"kind": "workdir", "value": "/models"}, {"kind": "port", "value": "8000"}]
    unmet = {**needs[0], "code": "COMMAND_MISSING", "message": "vllm is not on its PATH (/opt/bin)"}
    answer_examination(cluster, unmet=[unmet])
    result = cli("doctor", "-f", fleet, "--nodes")
    [job] = cluster.jobs
    needs_of = {row["node_name"]: cluster.request_of(job)["nodes"][row["node_id"]] for row in cluster.nodes}
    assert needs_of["node-a"] == needs_of["node-b"] == [{"path": None, **need} for need in needs]
    assert (needs_of["cpu-only"], needs_of["node-c"]) == ([], [])
    assert result.code == 1
    assert ("COMMAND_MISSING org/one: vllm is not on its PATH (/opt/bin), on node-a (1 of 2 nodes that may run it)"
            in " ".join(result.out.split()))
    assert job not in cli("history", "--format", "json").out, "an examination is not in the history"


@pytest.mark.parametrize(("env", "needs_image"), [("", True), ("\n          env: {HOME: /elsewhere}", False)])
def test_the_image_of_an_engine_is_looked_up_where_its_runtime_looks_for_it(
    cli, cluster: ClusterStandIn, tmp_path: Path, env: str, needs_image: bool
) -> None:
    fleet = tmp_path / "contained.yaml"
    command, [head, _] = "command: [podman, run, --rm, eng:1, serve]", NEEDY.split("command: ")
    fleet.write_text(f"{head}{command}{env}\n")
    need = {"kind": "image", "value": "eng:1", "path": "podman"}
    answer_examination(cluster, unmet=[{**need, "code": "IMAGE_MISSING", "message": "podman has no image eng:1"}])
    result = cli("doctor", "-f", fleet, "--nodes")
    [job] = cluster.jobs
    asked = cluster.request_of(job)["nodes"][cluster.nodes[0]["node_id"]]
    assert (need in asked) == needs_image
    shown = "IMAGE_MISSING org/one: podman has no image eng:1, on node-a" in " ".join(result.out.split())
    assert shown == needs_image


def test_a_container_is_left_to_its_daemon(cli, cluster: ClusterStandIn) -> None:
    answer_examination(cluster, orphans=[LEFT_CONTAINER])
    result = cli("doctor", "--nodes", "--fix", "--yes")
    assert result.code == 1
    assert "there is nothing for --fix to remove" in result.err
    assert "container 0123456789ab, process 99 (vllm serve)" in " ".join(result.out.split())
    assert len(cluster.jobs) == 1


def test_a_node_cordoned_by_a_policy_is_not_checked(cli, cluster: ClusterStandIn, tmp_path: Path) -> None:
    fleet = tmp_path / "needy.yaml"
    first = str(cluster.nodes[0]["node_id"])
    fleet.write_text(NEEDY.replace("{pool: old}", f"{{ray.io/node-id: {first}}}"))
    answer_examination(cluster)
    cli("doctor", "-f", fleet, "--nodes")
    [job] = cluster.jobs
    needs_of = cluster.request_of(job)["nodes"]
    assert {node_id for node_id, needs in needs_of.items() if not needs} == {first}


def leftovers_everywhere(cluster: ClusterStandIn, repaired: list[dict[str, Any]]) -> None:
    leaked_group(cluster)
    answer_examination(cluster, {"fleet": "lab", "number": 4, "job": "j9"}, orphans=[ORPHAN])
    examine = cluster.on_submit

    def respond(request: dict[str, Any]) -> list[tuple[str, str]]:
        if "groups" not in request:
            return examine(request)
        repaired.append(request)
        cluster.groups.clear()
        answer_examination(cluster)
        lines = event(0, "version", "agent")
        lines += event(1, "repaired", "", thing="placementGroup", subject="ModelActor:org/one:1:0", done=True)
        lines += event(2, "repaired", "it does not end", thing="engine", subject="process 41", done=False)
        return [("FAILED", lines + event(3, "runSummary", "1 of 2", outcomes=[], exitCode=3))]

    cluster.on_submit = respond


def test_fix_lists_leftovers_and_removes_them_after_a_yes(cli, cluster: ClusterStandIn) -> None:
    repaired: list[dict[str, Any]] = []
    leftovers_everywhere(cluster, repaired)
    refused = cli("doctor", "--nodes", "--fix", typed="n\n")
    assert (refused.code, repaired) == (1, [])
    listed = " ".join(refused.err.split())
    for what in ("placement group ModelActor:org/one:1:0",
                 "process 41 on node-a (vllm serve), an engine of org/one:1/3",
                 "lock of fleet lab, left by j9", "Remove these 3? [y/N]"):
        assert what in listed
    assert "org/one:1:1" not in listed, "its replica is alive"
    assert cli("doctor", "--nodes", "--fix").code == 64

    agreed = cli("doctor", "--nodes", "--fix", "--yes", "--format", "json")
    [request] = repaired
    assert request["groups"] == [{"id": "0a", "name": "ModelActor:org/one:1:0"}]
    assert request["orphans"] == {cluster.nodes[0]["node_id"]: [ORPHAN]}
    assert request["locks"] == [{"fleet": "lab", "number": 4, "job": "j9"}]
    diagnosis = json.loads(agreed.out)
    assert (agreed.code, diagnosis["findings"]) == (0, []), "the cluster is examined again after the removal"
    assert [(one["subject"], one["done"]) for one in diagnosis["repaired"]] == [
        ("ModelActor:org/one:1:0", True), ("process 41", False)]
    assert "process 41 was not removed: it does not end" in agreed.err


def test_fix_on_a_healthy_cluster_asks_nothing_and_writes_nothing(cli, cluster: ClusterStandIn) -> None:
    result = cli("doctor", "--fix")
    assert (result.code, cluster.writes()) == (0, [])
    assert "nothing for --fix to remove" in result.err
