"""`cordon`, `uncordon` and `slots`: notes that plans obey, the inventory shows and the history lists."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cluster_stand_in import ClusterStandIn, all_ready, event


def node(cli, name: str) -> dict[str, object]:
    [found] = [one for one in json.loads(cli("inventory", "--format", "json").out)["nodes"] if one["name"] == name]
    return found


def nodes_planned(cli, fleet_file: Path) -> set[str]:
    plan = json.loads(cli("plan", "-f", fleet_file, "--format", "json").out)
    return {member["node"] for action in plan["actions"] for member in action["members"]}


def test_a_cordoned_node_gets_no_replicas_and_the_plan_names_its_author(
        cli, cluster: ClusterStandIn, fleet_file: Path) -> None:
    cluster.add_replica("org/one", 0, cluster.nodes[0]["node_id"], gpus=0)
    done = cli("cordon", "node-a", "--for", "2h", "--reason", "new driver")
    assert done.code == 0
    assert "cordoned node-a until 20" in done.err
    [job] = cluster.jobs.values()
    assert job.body["metadata"]["nodeName"] == "node-a", "earlier releases read the job's metadata"
    [written] = json.loads(cluster.records.rows["fleetctl.records.cordon"]["metadata"]["records"])
    assert written["subject"] == job.body["metadata"]["node"]
    cordon = node(cli, "node-a")["cordon"]
    assert isinstance(cordon, dict)
    assert (cordon["reason"], cordon["until"]) == ("new driver", job.body["metadata"]["until"])
    assert nodes_planned(cli, fleet_file) == {"node-b"}
    plan = cli("plan", "-f", fleet_file)
    assert "new driver" in plan.out
    assert f"note of {cordon['by']} until {cordon['until']}" in " ".join(plan.out.split())
    assert "new driver" in cli("inventory").out
    assert "cordoned node-a until" in cli("history").out


def test_uncordon_lifts_the_cordon_and_without_one_writes_nothing(
        cli, cluster: ClusterStandIn, fleet_file: Path) -> None:
    assert "no note cordons node-a" in cli("uncordon", "node-a").err
    assert cluster.writes() == []
    cli("cordon", "node-a")
    assert cli("uncordon", "node-a").code == 0
    assert node(cli, "node-a")["cordon"] is None
    assert nodes_planned(cli, fleet_file) == {"node-a", "node-b"}


def test_slots_of_a_note_override_the_label_until_they_are_cleared(
        cli, cluster: ClusterStandIn, fleet_file: Path) -> None:
    cluster.nodes[0]["labels"]["fleet.io/replica-slots"] = "2"
    assert cli("slots", "node-a", "0").code == 0
    assert cli("slots", "node-b", "0").code == 0
    assert nodes_planned(cli, fleet_file) == set()
    result = cli("plan", "-f", fleet_file).out
    assert "cap 0: note of " in " ".join(result.split())
    assert "0 of 0 (note of" in " ".join(cli("inventory").out.split())
    assert cli("slots", "node-a", "--clear").code == 0
    assert node(cli, "node-a")["slots"] is None
    assert nodes_planned(cli, fleet_file) == {"node-a"}


def test_fewer_slots_than_replicas_of_a_model_are_set_only_after_a_yes(cli, cluster: ClusterStandIn) -> None:
    for number, place in enumerate((0, 0, 0, 1)):
        cluster.add_replica("org/one", number, cluster.nodes[place]["node_id"], gpus=10_000)
    cluster.add_replica("org/two", 0, cluster.nodes[0]["node_id"], gpus=10_000, fleet="other")
    asked = cli("slots", "node-a", "0", typed="n\n")
    assert (asked.code, cluster.writes()) == (1, [])
    assert "beyond: 3 replicas of org/one on node-a, 0 allowed" in asked.err
    assert "beyond: 1 replica of org/two on node-a, 0 allowed" in asked.err
    assert "Limit node-a to 0 of each model? [y/N]" in asked.err
    refused = cli("slots", "node-a", "2")
    assert (refused.code, cluster.writes()) == (64, [])
    assert "pass --yes" in refused.err
    assert cli("slots", "node-a", "2", typed="y\n").code == 0
    assert node(cli, "node-a")["slots"]["value"] == 2
    assert cli("slots", "node-a", "1", "--yes").code == 0
    assert cli("slots", "node-a", "3").code == 0, "all of them may stay, so nothing is asked"
    assert cli("slots", "node-b", "1").code == 0
    assert cli("slots", "node-a", "--clear").code == 0


def test_notes_are_listed_as_runs_of_their_own_beside_an_apply(
        cli, cluster: ClusterStandIn, fleet_file: Path) -> None:
    cli("cordon", "node-a")
    cluster.on_submit = lambda request: all_ready(request)[-1:]
    assert cli("apply", "-f", fleet_file, "--yes").code == 3
    listed = json.loads(cli("history", "--format", "json").out)["runs"]
    assert [(run["verb"], run["state"]) for run in listed] == [("apply", "partial"), ("cordon", "ok")]


@pytest.mark.parametrize("words", [("cordon",), ("uncordon",), ("slots", "1")])
def test_an_unknown_node_exits_with_1_and_suggests_the_nearest_name(
    cli, cluster: ClusterStandIn, words: tuple[str, ...]
) -> None:
    result = cli(words[0], "node-aa", *words[1:])
    assert result.code == 1
    assert "there is no node node-aa" in result.err
    assert "did you mean node-a?" in result.err
    assert cluster.writes() == []


@pytest.mark.parametrize("words", [
    ("slots", "node-a"), ("slots", "node-a", "2", "--clear"), ("slots", "node-a", "-1"), ("slots", "node-a", "x"),
    ("cordon", "node-a", "--for", "soon"), ("cordon",),
])
def test_invalid_arguments_exit_with_64(cli, cluster: ClusterStandIn, words: tuple[str, ...]) -> None:
    assert cli(*words).code == 64
    assert cluster.writes() == []


def test_a_note_that_the_cluster_refuses_is_an_error(cli, cluster: ClusterStandIn) -> None:
    cluster.refusals["POST", "/api/jobs/"] = [(405, "Method Not Allowed")]
    result = cli("cordon", "node-a")
    assert result.code == 1
    assert "cordoned node-a" not in result.err


@pytest.mark.parametrize(("status", "log", "words"), [
    ("FAILED", event(0, "runSummary", "the note could not be written to Ray's table", outcomes=[], exitCode=1),
     "the note could not be written to Ray's table"),
    ("FAILED", "", "the agent ended without a summary"),
])
def test_a_note_that_the_agent_does_not_write_is_an_error_with_what_to_do(
        cli, cluster: ClusterStandIn, status: str, log: str, words: str) -> None:
    cluster.note_steps = [(status, log)]
    result = cli("slots", "node-a", "2")
    assert (result.code, words in result.err) == (1, True)
    assert "node-a: 2 slots" not in result.err


def test_a_node_given_to_the_file_flag_is_refused_with_the_right_command(cli) -> None:
    result = cli("uncordon", "-f", "node-a")
    assert result.code == 64
    assert "-f takes a fleet file; its value may be the missing argument: fleetctl uncordon node-a" in result.err
