"""The inventory of a cluster as recorded from Ray 2.60: three GPU nodes, a gang, NDIF actors, a restart."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from fake_dashboard import FakeDashboard, status

from fleetctl.documents.canonical import indented_json
from fleetctl.documents.inventory import Inventory, Node, Replica, dead_node_ids, is_lost
from fleetctl.documents.loading import load_document
from fleetctl.inventory.claims import AgentView, Claim
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.dashboard import Live

MI = 1 << 20
P1 = "8184334e3588e8311b4f3d36354966dc0ae0f0d6f4ba180f7e8e426e"


def node(inventory: Inventory, pool: str) -> Node:
    return next(node for node in inventory.nodes if node.labels["fleet.io/pool"] == pool)


def replica(inventory: Inventory, model: str, replica_id: int) -> Replica:
    return next(r for r in inventory.replicas if (r.model, r.replica_id) == (model, replica_id))


def test_a_complete_reading_has_no_warnings_and_names_its_cluster(read, dashboard: FakeDashboard):
    inventory = read()
    assert inventory.complete
    assert inventory.warnings == []
    assert inventory.cluster.ray_version == "2.60.0"
    assert inventory.cluster.session_id == "session_2026-11-21_02-42-43_504102_2093"
    assert inventory.source == inventory.cluster.address == dashboard.url
    assert inventory.observed_at == "2026-03-04T12:00:00Z"


def test_only_gets_are_sent_with_explicit_limits_and_without_the_cache(read, dashboard: FakeDashboard):
    read()
    assert {request.method for request in dashboard.requests} == {"GET"}
    for request in dashboard.requests:
        assert "origin" not in request.headers
        assert "referer" not in request.headers
        assert request.headers["user-agent"].startswith("fleetctl/")
        if request.path in ("/api/v0/nodes", "/api/v0/actors"):
            assert request.query["limit"] == "10000"
        if request.path == "/nodes":
            assert request.query == {"view": "summary", "nocache": "1"}


def test_actors_are_queried_by_state_in_the_order_of_their_lifecycle(read, dashboard: FakeDashboard):
    read()
    asked = [request.query for request in dashboard.requests
             if request.path == "/api/v0/actors" and request.query["filter_keys"] == "state"]
    assert [(query["filter_keys"], query["filter_predicates"]) for query in asked] == [("state", "=")] * 5
    assert [query["filter_values"] for query in asked] == [
        "DEPENDENCIES_UNREADY", "PENDING_CREATION", "RESTARTING", "ALIVE", "RESTARTING"]


def test_an_actor_that_becomes_alive_between_two_queries_is_one_alive_replica(read, dashboard: FakeDashboard):
    slow = dashboard.rows("actors_pending_creation")[0]
    dashboard.rows("actors_alive").append({**slow, "state": "ALIVE", "node_id": "x" * 56})
    found = [r for r in read().replicas if r.actor_id == slow["actor_id"]]
    assert [r.state for r in found] == ["ALIVE"]


def test_nodes_that_share_a_host_get_unique_names(read):
    names = [node.name for node in read().nodes]
    assert names == ["vm-26dddf", "vm-818433", "vm-8ccf24", "vm-c4c267"]


def test_used_counts_actors_bundles_and_planned_members_once(read):
    inventory = read()
    used = {pool: node(inventory, pool).resources.used for pool in ("head", "p0", "p1", "p2")}
    # p0: 0.5 + 0.25 + a restarting 0.25 + the waiting gang's leader, and one actor with a CPU
    assert (used["p0"].gpu, used["p0"].cpu, used["p0"].memory) == (2.0, 1.0, 4 * MI)
    # p1: a starting 0.75, and one bundle with a GPU and a CPU; coordinator and member are not counted again
    assert (used["p1"].gpu, used["p1"].cpu, used["p1"].memory) == (1.75, 1.0, 2 * MI)
    # p2: NDIF's 0.1 with Ray's own CPU, one bundle, and both GPUs of the waiting gang's worker
    assert (used["p2"].gpu, used["p2"].cpu, used["p2"].memory) == (3.1, 1.0, 2 * MI)
    assert (used["head"].gpu, used["head"].cpu) == (0, 0)


def test_a_card_has_a_share_only_if_all_grants_of_the_node_are_explained(read):
    inventory = read()
    assert [card.share for card in node(inventory, "p1").gpus] == [0.75, 1.0]
    assert [card.share for card in node(inventory, "p2").gpus] == [None, 1.0]
    assert [card.memory_total for card in node(inventory, "p1").gpus] == [None, None]


def test_a_running_replica_of_one_member_reports_its_place(read):
    found = replica(read(), "org/plain", 0)
    member = found.members[0]
    assert (found.state, found.fleet, found.spec_hash, found.foreign_id) == ("ALIVE", "lab", "aaaa", None)
    assert (member.gpus, member.vram, member.memory) == (5000, 1 << 30, MI)
    assert (member.address, member.port, member.gpu_indices) == ("192.0.2.2", 23456, [1])


def test_a_model_key_keeps_its_colons(read):
    assert replica(read(), "org/co:lon:7", 3).fleet == "lab"


def test_a_starting_replica_is_on_its_planned_node(read):
    inventory = read()
    found = replica(inventory, "org/slow", 0)
    assert found.state == "PENDING_CREATION"
    assert found.members[0].node_id == node(inventory, "p1").id
    assert found.members[0].gpu_indices == []


def test_a_restarting_replica_shows_no_address_from_before_the_restart(read, dashboard: FakeDashboard):
    found = replica(read(), "org/crash", 1)
    assert found.state == "RESTARTING"
    assert (found.members[0].address, found.members[0].gpu_indices) == (None, [])
    assert "gpuIndices" in dashboard.rows("actors_restarting")[0]["repr_name"]


def test_a_gang_has_all_its_members_with_cards_and_ports(read):
    inventory = read()
    members = replica(inventory, "org/gang", 0).members
    assert [(m.role, m.rank, m.node_id, m.gpus, m.port, m.gpu_indices) for m in members] == [
        ("Leader", 0, node(inventory, "p1").id, 10000, 30000, [1]),
        ("Worker", 1, node(inventory, "p2").id, 10000, 30001, [1]),
    ]


def test_foreign_replicas_are_listed_as_foreign(read):
    inventory = read()
    foreign = {r.foreign_id: (r.model, r.fleet, r.replica_id) for r in inventory.replicas if r.foreign_id}
    ndif = 'nnsight.LanguageModel:{"repo_id": "openai-community/gpt2"}'
    assert foreign == {
        f"0a1b2:ModelActor:{ndif}": (ndif, None, None),
        "ModelActor:org/plain:0f8fad5b-d9cb-469f-a165-70867728950e": ("org/plain", None, None),
    }
    unmarked = replica(inventory, "org/plain", 9)
    assert (unmarked.fleet, unmarked.foreign_id) == (None, None)


def test_in_another_namespace_no_replica_belongs_to_a_fleet(read):
    inventory = read(namespace="fleet")
    assert {r.fleet for r in inventory.replicas} == {None}
    assert {r.replica_id for r in inventory.replicas} == {None}
    assert {r.spec_hash for r in inventory.replicas} == {None}


def test_used_resources_and_cards_are_the_same_from_another_namespace(read):
    ours, theirs = read(), read(namespace="fleet")
    assert [(n.resources.used, n.gpus) for n in theirs.nodes] == [(n.resources.used, n.gpus) for n in ours.nodes]
    assert sorted(r.members[0].node_id for r in theirs.replicas) == sorted(r.members[0].node_id for r in ours.replicas)


def test_a_dead_node_is_kept_and_keeps_its_replicas(read, dashboard: FakeDashboard):
    dead = next(row for row in dashboard.rows("nodes") if row["labels"]["fleet.io/pool"] == "p1")
    dead |= {"state": "DEAD", "resources_total": {}}
    inventory = read()
    assert node(inventory, "p1").state == "DEAD"
    assert node(inventory, "p1").gpus == []
    assert replica(inventory, "org/gang", 0).members[0].node_id == dead["node_id"]


def test_real_cards_are_read_with_their_memory_in_bytes(read, dashboard: FakeDashboard):
    for entry in dashboard.bodies["summary"]["data"]["summary"]:
        if entry["raylet"]["labels"]["fleet.io/pool"] == "p1":
            entry["gpus"] = [
                {"index": index, "name": "NVIDIA L4", "uuid": f"GPU-{index}", "utilizationGpu": -1, "memoryUsed": 1024,
                 "memoryTotal": 23034, "processesPids": None} for index in (1, 0)]
    cards = node(read(), "p1").gpus
    assert [(card.index, card.uuid, card.memory_total, card.memory_used, card.share) for card in cards] == [
        (0, "GPU-0", 23034 * MI, 1024 * MI, 0.75), (1, "GPU-1", 23034 * MI, 1024 * MI, 1.0)]


def used_by(pid: int, mib: int) -> dict[str, Any]:
    return {"pid": pid, "gpuMemoryUsage": mib, "gpuUtilization": None}


@pytest.mark.parametrize(("version", "memory"), [("2.49.2", 20480 * MI), ("2.55.1", None), ("2.57.1", 20480 * MI)])
def test_foreign_memory_is_shown_with_the_processes_of_the_card(read, dashboard: FakeDashboard, version: str, memory):
    """Card 0 of p1 is granted in part, with 4Gi to a replica; Ray 2.50 to 2.56 report a percentage as memory."""
    entry = summary_entry(dashboard, "p1")
    [stranger] = [worker for worker in entry["raylet"]["coreWorkersStats"] if worker["workerType"] == "WORKER"][:1]
    entry["gpus"] = [
        {"index": 0, "name": "NVIDIA L4", "uuid": "GPU-0", "memoryUsed": 22000, "memoryTotal": 23034,
         "processesPids": [used_by(4242, 20480), used_by(stranger["pid"], 300)]},
        {"index": 1, "name": "NVIDIA L4", "uuid": "GPU-1", "memoryUsed": 22000, "memoryTotal": 23034,
         "processesPids": None}]
    dashboard.bodies["version"]["ray_version"] = version
    shared, whole = node(read(), "p1").gpus
    assert [(one.pid, one.memory) for one in shared.processes][:1] == [(4242, memory)]
    assert shared.processes[0].command is None
    assert str(shared.processes[1].command).startswith("ray::")
    assert shared.memory_foreign is not None
    assert 0 < shared.memory_foreign < 22000 * MI
    assert whole.memory_foreign == 0, "the card is granted whole, so its use is not foreign"


def test_the_same_card_on_two_nodes_is_reported(read, dashboard: FakeDashboard):
    for entry in dashboard.bodies["summary"]["data"]["summary"]:
        if entry["raylet"]["resourcesTotal"].get("GPU"):
            entry["gpus"] = [{"index": index, "uuid": f"GPU-{index}"} for index in range(2)]
    inventory = read()
    assert inventory.complete
    assert [w for w in inventory.warnings if w.startswith("card ")] == [
        f"card GPU-{index} is reported by vm-26dddf, vm-818433, vm-c4c267: Ray nodes that share a machine"
        for index in range(2)]


def summary_entry(dashboard: FakeDashboard, pool: str) -> dict[str, Any]:
    entries: list[dict[str, Any]] = dashboard.bodies["summary"]["data"]["summary"]
    return next(entry for entry in entries if entry["raylet"]["labels"]["fleet.io/pool"] == pool)


def test_a_node_whose_cards_are_not_reported_is_named(read, dashboard: FakeDashboard):
    dashboard.bodies["summary"]["data"]["summary"].remove(summary_entry(dashboard, "p2"))
    inventory = read()
    assert inventory.complete
    assert inventory.warnings == ["192.0.2.2 is not in the dashboard's node summary: its cards are unknown"]


def test_a_node_alive_only_in_the_summary_makes_the_reading_incomplete(read, dashboard: FakeDashboard):
    stray = deepcopy(summary_entry(dashboard, "p2"))
    stray["raylet"]["nodeId"] = "f" * 56
    dashboard.bodies["summary"]["data"]["summary"].append(stray)
    inventory = read()
    assert not inventory.complete
    assert inventory.warnings == [
        f"node {'f' * 56} is alive in the dashboard's node summary but not in the cluster's list of nodes"]


def test_a_node_dead_only_in_the_summary_is_ignored(read, dashboard: FakeDashboard):
    stray = deepcopy(summary_entry(dashboard, "p2"))
    stray["raylet"] |= {"nodeId": "f" * 56, "state": "DEAD"}
    dashboard.bodies["summary"]["data"]["summary"].append(stray)
    assert read().complete


def unlist(dashboard: FakeDashboard, pool: str) -> None:
    """Remove a node from both lists, as if Ray no longer listed it."""
    dashboard.bodies["summary"]["data"]["summary"].remove(summary_entry(dashboard, pool))
    listing = dashboard.listing("nodes")
    listing["result"] = [row for row in listing["result"] if row["labels"]["fleet.io/pool"] != pool]
    count = len(listing["result"])
    listing |= {"total": count, "num_after_truncation": count, "num_filtered": count}


def test_actors_that_run_on_an_unlisted_node_make_the_reading_incomplete(read, dashboard: FakeDashboard):
    unlist(dashboard, "p1")
    inventory = read()
    assert not inventory.complete
    assert inventory.warnings[0].startswith("actors run on node 818433")


def test_a_replica_that_waits_for_an_unlisted_node_is_counted_and_named(read, dashboard: FakeDashboard):
    unlist(dashboard, "p1")
    for part in ("actors_alive", "placement_groups"):
        dashboard.rows(part).clear()
        dashboard.listing(part).update({"total": 0, "num_after_truncation": 0, "num_filtered": 0})
    inventory = read()
    assert inventory.complete
    assert inventory.warnings == [
        (f"replica ModelActor:org/slow:0 is PENDING_CREATION and planned on node {P1}, which the cluster does not "
         "list: it still counts; if that node is permanently gone, evict the replica")]
    assert not is_lost(replica(inventory, "org/slow", 0), dead_node_ids(inventory))


def test_nodes_that_could_not_be_read_are_not_called_unlisted(read, dashboard: FakeDashboard):
    dashboard.behaviours["nodes"] = status(500)
    assert not any("list of nodes" in warning or "does not list" in warning for warning in read().warnings)


def test_unreadable_reprs_are_reported_and_break_nothing(read, dashboard: FakeDashboard):
    row = next(row for row in dashboard.rows("actors_alive") if row["name"] == "ModelActor:org/plain:0")
    row["repr_name"] = '{"v":1,"fleet":"lab","specHash":"aaaa","members":[{"rank":"?"}]}'
    inventory = read()
    assert inventory.complete
    assert inventory.warnings == [f"replica {row['name']}: the members in its repr cannot be read"]
    found = replica(inventory, "org/plain", 0)
    assert (found.fleet, found.members[0].gpus, found.members[0].node_id) == ("lab", 5000, row["node_id"])


@pytest.mark.parametrize("log", [status(500), status(404)], ids=["refused", "gone"])
def test_a_starting_replica_without_a_log_still_belongs_to_the_fleet(read, dashboard: FakeDashboard, log):
    dashboard.behaviours["job_log"] = log
    inventory = read()
    assert inventory.complete
    found = replica(inventory, "org/slow", 0)
    assert (found.fleet, found.spec_hash, found.members[0].gpus) == ("lab", None, 7500)


def test_logs_are_read_only_for_replicas_without_a_repr(read, dashboard: FakeDashboard):
    for rows in (dashboard.rows("actors_pending_creation"),):
        rows.clear()
    dashboard.listing("actors_pending_creation").update({"total": 0, "num_after_truncation": 0, "num_filtered": 0})
    assert read().complete
    assert [request.path for request in dashboard.requests if request.path.endswith("/logs")] == []


def test_without_the_jobs_the_fleet_of_a_starting_replica_is_unknown(read, dashboard: FakeDashboard):
    dashboard.behaviours["jobs"] = status(404)
    inventory = read()
    assert not inventory.complete
    assert "the fleet of ModelActor:org/gang:1, ModelActor:org/slow:0 is unknown" in inventory.warnings


def test_without_the_jobs_a_cluster_in_which_nothing_starts_is_complete(read, dashboard: FakeDashboard):
    dashboard.behaviours["jobs"] = status(404)
    dashboard.rows("actors_pending_creation").clear()
    dashboard.listing("actors_pending_creation").update({"total": 0, "num_after_truncation": 0, "num_filtered": 0})
    assert read().complete


def test_an_unreadable_list_of_jobs_may_hide_cordons(read, dashboard: FakeDashboard):
    dashboard.behaviours["jobs"] = status(500)
    inventory = read()
    assert not inventory.complete
    start = "the jobs could not be read, so cordons are unknown: "
    assert any(warning.startswith(start) for warning in inventory.warnings)


def test_an_alive_actor_that_was_never_constructed_is_listed_and_not_ready(read, dashboard: FakeDashboard):
    """Its constructor raised while its process could not exit, so Ray lists it as ALIVE forever."""
    row = next(row for row in dashboard.rows("actors_alive") if row["name"] == "ModelActor:org/plain:0")
    row["repr_name"] = ""
    inventory = read()
    found = replica(inventory, "org/plain", 0)
    assert (found.state, found.fleet, found.constructed) == ("ALIVE", "lab", False)
    assert is_lost(found, frozenset())
    assert all(other.constructed for other in inventory.replicas if other is not found)


def sums(dashboard: FakeDashboard, pool: str, text: str | None) -> None:
    """Set Ray's sum of one node; None = Ray reports no sum for it."""
    sums = dashboard.bodies["summary"]["data"]["nodeLogicalResources"]
    node_id = summary_entry(dashboard, pool)["raylet"]["nodeId"]
    sums.pop(node_id) if text is None else sums.update({node_id: text})


def test_cards_of_ray_tasks_are_not_offered(read, dashboard: FakeDashboard):
    sums(dashboard, "p1", "1.0/8.0 CPU\n2.0/2.0 GPU\n1.00MiB/22.62GiB memory")
    found = node(read(), "p1").resources
    assert (found.used.gpu, found.listed.gpu) == (2.0, 1.75)


def test_an_actor_waiting_for_a_worker_counts_although_rays_sum_lacks_it(read):
    found = node(read(), "p1").resources
    assert (found.used.gpu, found.listed) == (1.75, None)


def test_a_node_without_a_sum_counts_by_what_is_listed(read, dashboard: FakeDashboard):
    sums(dashboard, "p1", None)
    assert node(read(), "p1").resources.used.gpu == 1.75
    assert "placement_groups" not in "".join(request.path for request in dashboard.requests)


def test_placement_groups_are_requested_only_if_ray_reports_no_sums(read, dashboard: FakeDashboard):
    read()
    assert "/api/v0/placement_groups" not in {request.path for request in dashboard.requests}
    dashboard.bodies["summary"]["data"]["nodeLogicalResources"] = {}
    inventory = read()
    assert "/api/v0/placement_groups" in {request.path for request in dashboard.requests}
    assert inventory.complete
    assert inventory.warnings == ["Ray gives no sums of what is in use: cards that Ray tasks hold are unknown"]
    assert node(inventory, "p2").resources.used.gpu == 3.1


def test_the_room_of_a_gang_that_lost_a_node_is_free_for_others(read, dashboard: FakeDashboard):
    dead = next(row for row in dashboard.rows("nodes") if row["labels"]["fleet.io/pool"] == "p1")
    dead |= {"state": "DEAD", "resources_total": {}}
    sums(dashboard, "p1", None)
    sums(dashboard, "p2", "0.0/8.0 CPU\n0.1/2.0 GPU\n0B/22.48GiB memory")
    inventory = read()
    assert is_lost(replica(inventory, "org/gang", 0), dead_node_ids(inventory))
    # the worker of the other gang, whose group is pending, and an actor of NDIF
    assert node(inventory, "p2").resources.used.gpu == 2.1


def test_a_node_that_an_apply_found_draining_offers_nothing(read, dashboard: FakeDashboard):
    node_id = summary_entry(dashboard, "p2")["raylet"]["nodeId"]
    dashboard.bodies["jobs"][0]["metadata"]["draining"] = f"{node_id} {'e' * 56}"
    inventory = read()
    assert node(inventory, "p2").state == "DRAINING"
    assert node(inventory, "p1").state == "ALIVE"


def test_a_drain_in_the_dashboards_record_counts(read, dashboard: FakeDashboard):
    summary_entry(dashboard, "p2")["raylet"]["stateSnapshot"]["state"] = "DRAINING"
    assert node(read(), "p2").state == "DRAINING"


def test_an_agents_view_wins_over_the_dashboard(dashboard: FakeDashboard):
    by_pool = {pool: summary_entry(dashboard, pool)["raylet"]["nodeId"] for pool in ("p0", "p1", "p2")}
    view = AgentView({by_pool["p1"]: Claim(0, 70_000, 1 << 30)}, frozenset({by_pool["p2"]}))
    with DashboardClient(dashboard.url) as client:
        inventory = Live(client, lambda: "2026-03-04T12:00:00Z", "invfleet", view).read()
    assert node(inventory, "p1").resources.used.gpu == 2.0
    assert node(inventory, "p2").state == "DRAINING"
    assert node(inventory, "p0").state == "ALIVE"


def test_the_order_of_rows_does_not_change_the_bytes_of_an_inventory(read, dashboard: FakeDashboard):
    first = indented_json(read())
    for part in ("nodes", "actors_alive", "placement_groups", "actors_pending_creation"):
        dashboard.rows(part).reverse()
    dashboard.bodies["summary"]["data"]["summary"].reverse()
    assert indented_json(read()) == first


def test_a_written_inventory_is_read_back_unchanged(read):
    inventory = read()
    assert load_document(indented_json(inventory), Inventory, where="x") == inventory
