"""`fleetctl logs MODEL/ID`: what the engines of one replica wrote; reads only."""

from __future__ import annotations

import pytest
from cluster_stand_in import ClusterStandIn

from fleetctl.inventory.log_name import log_name

MODEL = "org/one:1"


@pytest.fixture
def running(cluster: ClusterStandIn) -> ClusterStandIn:
    """One replica that runs, with its log on its node."""
    node = cluster.nodes[1]["node_id"]
    cluster.add_replica(MODEL, 3, node)
    cluster.log_files[node, log_name("fleet", MODEL, 3, "main", 0, 0)] = "one\ntwo\nthree"
    return cluster


def test_the_log_of_a_running_replica_comes_from_its_node(cli, running: ClusterStandIn) -> None:
    shown = cli("logs", f"{MODEL}/3")
    assert (shown.code, shown.out, shown.err) == (0, "one\ntwo\nthree\n", "")
    assert running.writes() == []


def test_the_tail_is_what_was_asked_for(cli, running: ClusterStandIn) -> None:
    assert cli("logs", f"{MODEL}/3", "--tail", "2").out == "two\nthree\n"
    assert cli("logs", f"{MODEL}/3", "--tail", "0").code == 64


def test_a_replica_that_is_gone_has_left_its_log(cli, running: ClusterStandIn) -> None:
    running.actors.clear()
    assert cli("logs", f"{MODEL}/3").out == "one\ntwo\nthree\n"


def test_members_are_headed_and_can_be_chosen(cli, running: ClusterStandIn) -> None:
    running.actors.clear()
    node = running.nodes[0]["node_id"]
    running.log_files[node, log_name("fleet", MODEL, 3, "main", 1, 2)] = "a worker\n"
    assert cli("logs", f"{MODEL}/3").out == (
        "==> main/1 rank 2 <==\na worker\n==> main/0 rank 0 <==\none\ntwo\nthree\n")
    assert cli("logs", f"{MODEL}/3", "--rank", "2").out == "a worker\n"
    assert cli("logs", f"{MODEL}/3", "--copy", "0").out == "one\ntwo\nthree\n"
    assert cli("logs", f"{MODEL}/3", "--group", "other").code == 1


@pytest.mark.parametrize("name", [f"{MODEL}/4", "nobody/0", "org/one/3"])
def test_a_replica_without_a_log_is_1_and_says_so(cli, running: ClusterStandIn, name: str) -> None:
    shown = cli("logs", name)
    assert shown.code == 1
    assert f"there is no log of {name}" in shown.err
    assert "fleetctl status" in shown.err
    assert shown.out == ""


@pytest.mark.parametrize("name", ["gpt2", "gpt2/", "/0", "gpt2/x", "gpt2/-1", "gpt2/1.0", "gpt2/\u0663"])
def test_what_names_no_replica_is_a_usage_error(cli, running: ClusterStandIn, name: str) -> None:
    shown = cli("logs", name)
    assert shown.code == 64
    assert "MODEL/ID" in shown.err


def test_the_namespace_is_part_of_where_a_log_lies(cli, running: ClusterStandIn) -> None:
    assert cli("logs", f"{MODEL}/3", "--namespace", "other").code == 1


def test_an_empty_log_is_a_log(cli, running: ClusterStandIn) -> None:
    running.log_files = dict.fromkeys(running.log_files, "")
    shown = cli("logs", f"{MODEL}/3")
    assert (shown.code, shown.out) == (0, "")


def test_where_not_all_could_be_read_nobody_knows_whether_there_is_a_log(cli, running: ClusterStandIn) -> None:
    running.refusals["GET", "/api/version"] = [(500, "")] * 10
    shown = cli("logs", "nobody/0")
    assert shown.code == 1
    assert "that is not all: " in shown.err
    assert "version and session" in shown.err


def test_a_replica_that_was_given_to_the_file_flag_is_pointed_at(cli, running: ClusterStandIn) -> None:
    shown = cli("logs", "-f", f"{MODEL}/3")
    assert shown.code == 64
    assert f"-f takes a fleet file; what it was given may be the argument: fleetctl logs {MODEL}/3" in shown.err
    assert "-f takes" not in cli("logs").err
