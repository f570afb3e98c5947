"""`fleetctl logs MODEL/ID`: the output of the engines of one replica; read-only. These logs have no timestamps."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cluster_stand_in import ClusterStandIn

from fleetctl.cli import console
from fleetctl.inventory.engine_log import log_name

MODEL = "org/one:1"


@pytest.fixture
def running(cluster: ClusterStandIn) -> ClusterStandIn:
    """One running replica, with its log on its node."""
    node = cluster.nodes[1]["node_id"]
    cluster.add_replica(MODEL, 3, node)
    cluster.log_files[node, log_name("fleet", MODEL, 3, "main", 0, 0)] = "one\ntwo\nthree"
    return cluster


def test_the_log_of_a_running_replica_comes_from_its_node(cli, running: ClusterStandIn) -> None:
    result = cli("logs", f"{MODEL}/3")
    assert (result.code, result.out, result.err) == (0, "one\ntwo\nthree\n", "")
    assert running.writes() == []


def test_the_tail_has_the_requested_number_of_lines(cli, running: ClusterStandIn) -> None:
    result = cli("logs", f"{MODEL}/3", "--tail", "2")
    assert (result.out, result.err) == ("two\nthree\n", "note: ... earlier lines are not shown\n")
    assert cli("logs", f"{MODEL}/3", "--tail", "0").out == ""
    assert cli("logs", f"{MODEL}/3", "--tail", "-1").code == 64


def test_a_log_without_times_is_shown_in_full_despite_since(cli, running: ClusterStandIn) -> None:
    result = cli("logs", f"{MODEL}/3", "--since", "1s")
    assert result.out == "one\ntwo\nthree\n"
    assert "no times" in result.err


def test_the_log_of_a_replica_that_is_gone_is_still_shown(cli, running: ClusterStandIn) -> None:
    running.actors.clear()
    assert cli("logs", f"{MODEL}/3").out == "one\ntwo\nthree\n"


def test_members_are_named_and_can_be_chosen(cli, running: ClusterStandIn) -> None:
    running.actors.clear()
    node = running.nodes[0]["node_id"]
    running.log_files[node, log_name("fleet", MODEL, 3, "main", 1, 2)] = "a worker\n"
    assert cli("logs", f"{MODEL}/3").out == (
        "[main/1 rank 2] a worker\n[main/0 rank 0] one\n[main/0 rank 0] two\n[main/0 rank 0] three\n")
    assert cli("logs", f"{MODEL}/3", "--rank", "2").out == "a worker\n"
    assert cli("logs", f"{MODEL}/3", "--copy", "0").out == "one\ntwo\nthree\n"
    missing = cli("logs", f"{MODEL}/3", "--group", "other")
    assert missing.code == 1
    assert "it has main/0 rank 0, main/1 rank 2" in missing.err


@pytest.mark.parametrize(("name", "hint"), [
    (f"{MODEL}/4", f"{MODEL} has 3"), ("one:1", f"did you mean {MODEL}?"), ("org/one/3", "did you mean"),
    *((name, "fleetctl status") for name in ("nobody/0", "gpt2", "gpt2/", "/0", "gpt2/-1"))])
def test_a_replica_without_a_log_exits_with_1_and_a_hint(cli, running: ClusterStandIn, name: str, hint: str) -> None:
    result = cli("logs", name)
    assert result.code == 1
    assert f"there is no log of {name}" in result.err
    assert hint in result.err
    assert result.out == ""


def test_the_namespace_is_part_of_the_path_of_a_log(cli, running: ClusterStandIn) -> None:
    assert cli("logs", f"{MODEL}/3", "--namespace", "other").code == 1


def test_an_empty_log_is_not_an_error(cli, running: ClusterStandIn) -> None:
    running.log_files = dict.fromkeys(running.log_files, "")
    result = cli("logs", f"{MODEL}/3")
    assert (result.code, result.out) == (0, "")


def test_with_an_incomplete_inventory_no_log_is_reported_as_missing(cli, running: ClusterStandIn) -> None:
    running.refusals["GET", "/api/version"] = [(500, "")] * 10
    result = cli("logs", "nobody/0")
    assert result.code == 1
    assert "that could be read: " in result.err
    assert "version and session" in result.err


def test_a_fleet_file_after_f_is_refused_with_the_right_flag(cli, running: ClusterStandIn) -> None:
    """-f names a fleet file in all other commands; here it must not make a script wait."""
    result = cli("logs", f"{MODEL}/3", "-f", "fleets/prod.yaml")
    assert result.code == 64
    assert "-f means --follow here; --file names a fleet file" in result.err


RAY_FAULT = (500, "UNAUTHENTICATED: Invalid or missing authentication token\ngrpc ...")


@pytest.mark.parametrize("listed", [True, False], ids=["running", "gone"])
def test_an_unreadable_log_is_not_reported_as_missing(cli, running: ClusterStandIn, listed: bool) -> None:
    if not listed:
        running.actors.clear()
    running.answer_of_node = {node["node_id"]: RAY_FAULT for node in running.nodes}
    result = cli("logs", f"{MODEL}/3")
    assert (result.code, result.out) == (1, "")
    assert f"the log of {MODEL}/3 cannot be read: " in result.err
    assert "answered 500: UNAUTHENTICATED: Invalid or missing authentication token" in result.err
    assert "there is no log" not in result.err


def test_a_node_that_fails_in_a_search_is_reported_with_the_logs_of_others(cli, running: ClusterStandIn) -> None:
    running.actors.clear()
    running.answer_of_node[running.nodes[0]["node_id"]] = RAY_FAULT
    result = cli("logs", f"{MODEL}/3")
    assert (result.code, result.out) == (1, "one\ntwo\nthree\n")
    assert "warning: not everything could be read: node node-a: /api/v0/logs answered 500: UNAUTH" in result.err


def test_a_failure_on_every_node_is_reported_in_a_few_lines(cli, running: ClusterStandIn) -> None:
    for number in range(30):
        running.answer_of_node[running.add_node(f"more-{number}")] = RAY_FAULT
    running.actors.clear()
    assert cli("logs", f"{MODEL}/3").err.count("UNAUTHENTICATED") == 10
    assert "and 20 more" in cli("logs", f"{MODEL}/3").err


HOSTILE = "\x1b]0;owned\x07\u202eevil\ttab\r\n::error::pwn\n  ##[error]p\n\xff"


@pytest.mark.parametrize(("environ", "flags"), [
    ({"GITHUB_ACTIONS": "true"}, ()), ({"CI": "1"}, ()), ({"FORCE_COLOR": "1"}, ()), ({}, ("--color", "always")),
], ids=["github", "ci", "force color", "color flag"])
def test_control_characters_of_an_engine_are_made_visible_for_people(
    cli, running: ClusterStandIn, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], flags: tuple[str, ...]
) -> None:
    running.log_files = dict.fromkeys(running.log_files, HOSTILE)
    monkeypatch.setattr(console, "_choice", "auto")  # restored afterwards, whatever the flag sets
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    result = cli(*flags, "logs", f"{MODEL}/3")
    assert result.out.splitlines()[0] == "\\x1b]0;owned\\x07\\u202eevil\ttab"
    commands = ["\\u003a:error::pwn", "  \\u0023#[error]p"] if "color" not in str((environ, flags)).lower() else [
        "::error::pwn", "  ##[error]p"]
    assert result.out.splitlines()[1:3] == commands
    assert all(char.isprintable() or char in "\t\n" for char in result.out)


def test_a_terminal_gets_no_control_sequences(running: ClusterStandIn, tmp_path: Path) -> None:
    running.log_files = dict.fromkeys(running.log_files, HOSTILE)
    controller, terminal = os.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "fleetctl", "logs", f"{MODEL}/3", "--address", running.url], stdout=terminal,
            stdin=subprocess.DEVNULL, check=False, timeout=300, env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)})
        result = os.read(controller, 65536)
    finally:
        os.close(controller)
        os.close(terminal)
    assert done.returncode == 0
    assert b"\\x1b]0;owned" in result
    assert b"\x1b" not in result


def test_a_pipe_gets_what_an_engine_wrote_byte_for_byte(run_process, running: ClusterStandIn) -> None:
    running.log_files = dict.fromkeys(running.log_files, HOSTILE)
    done = run_process("logs", f"{MODEL}/3", "--address", running.url)
    assert done.stdout == HOSTILE.replace("\r\n", "\n") + "\n"  # reading this pipe as text normalizes line ends
