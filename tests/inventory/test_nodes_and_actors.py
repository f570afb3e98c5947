"""Rows of the state API: names of nodes, and fields that a row may lack."""

from __future__ import annotations

from fleetctl.agent.messages import FailedStart
from fleetctl.agent.report import encode_failure
from fleetctl.documents.inventory import Node
from fleetctl.inventory.actors import read_actor
from fleetctl.inventory.assemble import read_node, unique_names


def node(node_id: str, record: dict | None = None, **row) -> Node:
    found = read_node({"node_id": node_id * 8, "state": "ALIVE", "node_ip": "10.0.0.1", "node_name": "10.0.0.1", **row},
                      record or {})
    assert found is not None
    return found


def test_a_node_is_named_by_label_then_given_name_then_host_then_ip():
    host = {"nodeManagerHostname": "gpu-17"}
    assert node("a", host, labels={"fleet.io/node": "node-a"}, node_name="given").name == "node-a"
    assert node("a", host, node_name="given").name == "given"
    assert node("a", host).name == "gpu-17"
    assert node("a").name == "10.0.0.1"
    assert node("a", node_ip=None, node_name=None).name == "a" * 8


def test_names_are_unique_and_a_live_node_keeps_its_own():
    nodes = [node("a"), node("b", state="DEAD"), node("c", state="DEAD"), node("d", node_name="alone")]
    assert unique_names(nodes) == {
        "a" * 8: "10.0.0.1", "b" * 8: "10.0.0.1-bbbbbb", "c" * 8: "10.0.0.1-cccccc", "d" * 8: "alone"}
    assert sorted(unique_names([node("a"), node("b")]).values()) == ["10.0.0.1-aaaaaa", "10.0.0.1-bbbbbb"]


def test_only_dead_nodes_are_dead_and_an_unknown_state_offers_nothing():
    assert node("a", state="DEAD").state == "DEAD"
    assert node("a", state="SOMETHING_NEW").state == "DRAINING"
    assert node("a", state=None).state == "DRAINING"


def test_an_invalid_start_time_of_a_node_is_unknown():
    assert [node("a", start_time_ms=ms).started_at for ms in (1_700_000_000_000, 0, -1, 10**20, "?", None)] == [
        "2023-11-14T22:13:20Z", None, None, None, None, None]


def test_a_minimal_row_of_an_actor_is_read():
    actor = read_actor({"actor_id": "x", "state": "ALIVE"})
    assert actor is not None
    assert (actor.name, actor.namespace, actor.node_id, actor.placement_group_id) == ("", None, None, None)
    assert (actor.repr_name, actor.job_id, actor.restarts, actor.error) == ("", "", 0, None)


def test_dead_actors_and_rows_without_an_id_are_not_live_actors():
    assert read_actor({"actor_id": "x", "state": "DEAD"}) is None
    assert read_actor({"state": "ALIVE"}) is None


def test_the_error_of_a_dead_actor_is_the_last_line_of_the_innermost_cause():
    cause = {"actor_died_error_context": {"error_message": "The actor died.\nRuntimeError: out of memory\n", "pid": 3}}
    actor = read_actor({"actor_id": "x", "state": "RESTARTING", "death_cause": cause, "num_restarts": "2"})
    assert actor is not None
    assert (actor.error, actor.restarts) == ("RuntimeError: out of memory", 2)


def test_the_error_of_a_restarted_replica_is_the_reason_recorded_by_the_agent():
    packed = encode_failure(FailedStart("ENGINE_EXITED", "it exited with code 1; last output: boom\nand more", "now"))
    cause = {"actor_died_error_context": {"error_message": f"Worker exits with an exit code 1. {packed}"}}
    actor = read_actor({"actor_id": "x", "state": "RESTARTING", "death_cause": cause})
    assert actor is not None
    assert actor.error == "it exited with code 1"
