"""Flags and commands of kubectl and Terraform are refused with a hint, and plain arguments are fleet files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli_result import Cli

from fleetctl.cli import app, commands


@pytest.mark.parametrize(("typed", "right"), [
    ("plan -out=x", "--out=x"), ("plan -out x", "--out"), ("plan -f=FLEET", "-f FLEET"), ("apply -file=a", "--file=a"),
    ("plan FLEET -o json", "--format json"), ("plan FLEET -ojson", "--format json"), ("status -o wide", "--format"),
    ("plan FLEET --output json", "--format"), ("apply FLEET --dry-run", "`fleetctl plan`"),
    ("apply FLEET --auto-approve", "--yes"), ("apply -auto-approve", "--yes"), ("status -w", "--follow"),
    ("inventory --watch", "watch -n 10"), ("apply FLEET --prune", "evict"), ("status -n fleet", "--namespace"),
    ("plan FLEET -json", "--format json"), ("plan FLEET --json", "--format json"),
])
def test_the_flag_of_another_tool_is_refused_with_our_flag(
    cli: Cli, fits: Path, monkeypatch: pytest.MonkeyPatch, typed: str, right: str
) -> None:
    monkeypatch.chdir(fits.parent)
    before = sorted(fits.parent.iterdir())
    result = cli(*typed.replace("FLEET", fits.name).split())
    assert (result.code, result.out) == (64, "")
    assert right.replace("FLEET", fits.name) in result.err.partition("hint: ")[2]
    assert sorted(fits.parent.iterdir()) == before


def test_a_file_may_have_the_name_of_a_format(cli: Cli, fits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(fits.parent)
    assert cli("plan", fits, "-o", "./json").code == 0
    assert (fits.parent / "json").is_file()


@pytest.mark.parametrize("command", ["validate", "fmt --check", "render", "plan", "capacity", "what-if --each-node",
                                     "map", "inventory", "status", "apply --yes", "ci validate"])
def test_a_plain_argument_is_a_fleet_file(cli: Cli, fits: Path, command: str) -> None:
    plain, flagged = cli(*command.split(), fits), cli(*command.split(), "-f", fits)
    assert plain.code == flagged.code == 0, plain.err
    assert cli(*command.split(), fits.parent / "missing.yaml").code == 1


def test_the_hint_for_a_missing_file_uses_the_flag_if_arguments_are_models(cli: Cli) -> None:
    assert "fleetctl scale org/m -f fleet.yaml;" in cli("scale", "org/m", "--replicas", "3").err
    assert "fleetctl plan fleet.yaml;" in cli("plan").err


def test_plain_arguments_and_flags_are_one_fleet(cli: Cli, fits: Path, tmp_path: Path) -> None:
    more = tmp_path / "more.yaml"
    more.write_text(fits.read_text().replace("org/", "team/"))
    assert "4 models" in cli("validate", fits, "--format", "table", more).err
    assert "4 models" in cli("validate", "-f", fits, more).err


def test_fleet_files_and_a_saved_plan_are_not_applied_together(cli: Cli, fits: Path) -> None:
    assert "not both" in cli("apply", fits, "prod.fleetplan").err
    assert "one plan or job" in cli("apply", "a.fleetplan", "b.fleetplan").err


def test_plain_files_keep_their_order_among_the_flags(cli: Cli, tmp_path: Path) -> None:
    """Argument order decides: a later node policy wins. A shell turns `-f fleets/*.yaml` into `-f a.yaml b.yaml`."""
    names = []
    for number, cap in enumerate((1, 4)):
        path = tmp_path / f"{number}.yaml"
        path.write_text("apiVersion: fleetctl/v1\nkind: Fleet\nmetadata: {name: lab}\nspec:\n  nodes: "
                        f"[{{maxReplicasPerModel: {cap}}}]\n  models:\n  - {{key: m{number}, replicas: 0, workers: "
                        "[{name: main, members: [{resources: {gpus: 1}, engine: {command: [a]}}]}]}\n")
        names.append(path)
    caps = {}
    for words in (("-f", names[0], "-f", names[1]), ("-f", names[0], names[1]), (names[0], "-f", names[1]), (*names,),
                  ("--", *names), (names[0], "--format", "json", names[1])):
        result = cli("render", *words, *(() if "--format" in words or "--" in words else ("--format", "json")))
        assert result.code == 0, result.err
        caps[words] = [int(cap) for cap in re.findall(r"maxReplicasPerModel\W+(\d)", result.out)]
    assert set(map(tuple, caps.values())) == {(1, 4)}


@pytest.mark.parametrize(("command", "hint"), [
    ("get", "fleetctl status"), ("destroy", "fleetctl evict MODEL/ID"), ("help", "fleetctl --help"),
    ("lint", "fleetctl validate"), ("config", "fleetctl context use NAME"),
    ("down", "fleetctl evict MODEL/ID"), ("update", "fleetctl replace MODEL"), ("upgrade", "fleetctl replace MODEL"),
    ("rollback", "revert the fleet file in git"), ("move", "fleetctl drain NODE"),
    ("start", "fleetctl deploy MODEL"), ("run", "fleetctl apply"), ("undeploy", "fleetctl evict MODEL/ID"),
    ("edit", "fleetctl propose"), ("unpause", "fleetctl resume"), ("abort", "fleetctl stop"),
    ("replicas", "fleetctl status")])
def test_a_command_of_another_tool_gets_ours_suggested(cli: Cli, command: str, hint: str) -> None:
    outcome = cli(command, "models")
    assert (outcome.code, outcome.err.splitlines()[0]) == (64, f"error: there is no command {command} here")
    assert hint in outcome.err


def test_no_hint_about_another_tool_hides_a_command_of_ours() -> None:
    assert not set(commands.OTHERS_COMMANDS) & {*app.COMMANDS}


def test_every_hint_about_a_command_names_one_that_exists() -> None:
    named = re.findall(r"`fleetctl ([a-z][a-z-]*)", " ".join(commands.OTHERS_COMMANDS.values()))
    assert set(named) <= {*app.COMMANDS}


def test_without_a_file_the_hint_says_how_to_name_one(cli: Cli) -> None:
    assert "hint: name a fleet file: fleetctl plan fleet.yaml" in cli("plan").err
    assert "take a snapshot" in cli("doctor", "--inventory", "lab.json").err
