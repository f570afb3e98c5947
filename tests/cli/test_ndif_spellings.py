"""The spellings of NDIF's command line: the checkpoint for a model, --ray-address, --scale-up as a flag, deploy's 1."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_result import Cli
from cluster_stand_in import ClusterStandIn, all_ready
from model_keys import CHECKPOINT, NDIF_KEY

from fleetctl.cli.app import COMMANDS
from fleetctl.cli.ci import COMMANDS as CI_COMMANDS

AT_STEP = NDIF_KEY.replace("main", "step1000")


@pytest.fixture
def ndif_file(fleet_file: Path) -> Path:
    """The fleet file with a key of NDIF, of which five replicas fit, and the wish for three."""
    text = fleet_file.read_text().replace("key: org/one", f"key: '{NDIF_KEY}'").replace("gpus: 8", "gpus: 1")
    fleet_file.write_text(text)
    return fleet_file


@pytest.fixture
def acting(cluster: ClusterStandIn) -> ClusterStandIn:
    cluster.on_submit = all_ready
    return cluster


def live(cluster: ClusterStandIn, *ids: int, key: str = NDIF_KEY, fleet: str = "lab") -> None:
    for replica_id in ids:
        cluster.add_replica(key, replica_id, cluster.nodes[0]["node_id"], fleet=fleet, gpus=0)


@pytest.mark.parametrize("name", [CHECKPOINT, NDIF_KEY])
def test_deploy_starts_one_replica_of_the_model_that_holds_the_checkpoint(
        cli: Cli, acting: ClusterStandIn, ndif_file: Path, name: str) -> None:
    done = cli("deploy", name, "-f", ndif_file, "--yes")
    assert done.code == 0, done.err
    assert acting.created() == [f"{NDIF_KEY}/0"]
    assert "the next apply starts 2 replicas more" in " ".join(done.err.split())


@pytest.mark.parametrize(("words", "ids"), [
    (("--replicas", "2", "--scale-up"), [4, 5]), (("--scale-up", "--replicas", "2"), [4, 5]),
    (("--scale-up", "1"), [4]), (("--scale-up=1",), [4]), (("--replicas", "3"), [4]), (("--replicas", "2"), []),
])
@pytest.mark.parametrize("first", [True, False])
def test_scale_up_is_a_flag_or_has_a_number(
        cli: Cli, acting: ClusterStandIn, ndif_file: Path, words: tuple[str, ...], ids: list[int], *, first: bool
) -> None:
    live(acting, 0, 3)
    done = cli("scale", *((CHECKPOINT, *words) if first else (*words, CHECKPOINT)), "-f", ndif_file, "--yes")
    assert done.code == 0, done.err
    assert acting.created() == [f"{NDIF_KEY}/{replica_id}" for replica_id in ids]


@pytest.mark.parametrize("words", [
    ("--scale-up",), (), ("--replicas", "1", "--scale-up", "1"), ("--scale-up", "0"), ("--scale-up", "100001"),
    ("--scale-up=x",), ("--scale-up=-1",), ("--scale-up", "x"), ("--scale-up=" + "9" * 5_000,)])
def test_scale_needs_exactly_one_number(
        cli: Cli, acting: ClusterStandIn, ndif_file: Path, words: tuple[str, ...]) -> None:
    assert cli("scale", CHECKPOINT, *words, "-f", ndif_file, "--yes").code == 64
    assert acting.writes() == []


@pytest.mark.parametrize("verb", [("status",), ("plan",), ("evict", f"{CHECKPOINT}/0", "--dry-run")])
@pytest.mark.parametrize("equals", [True, False])
def test_ray_address_names_the_cluster(
        cli: Cli, acting: ClusterStandIn, ndif_file: Path, monkeypatch: pytest.MonkeyPatch, verb: tuple[str, ...], *,
        equals: bool) -> None:
    live(acting, 0)
    monkeypatch.delenv("FLEETCTL_ADDRESS")
    flag = (f"--ray-address={acting.url}",) if equals else ("--ray-address", acting.url)
    assert cli(*verb, *flag, "-f", ndif_file).code == 0
    assert cli(*verb, "-f", ndif_file).code == 1


def test_every_command_with_an_address_knows_it_as_ray_address(cli: Cli) -> None:
    unreachable = "http://127.0.0.1:1"

    def addressed(command: Any, *words: str) -> Iterator[tuple[str, ...]]:
        if any("--address" in one.opts for one in command.params):
            yield words
        for name, below in getattr(command, "commands", {}).items():
            yield from addressed(CI_COMMANDS[name].load(name) if words == ("ci",) else below, *words, name)

    found = [words for name, listed in COMMANDS.items() for words in addressed(listed.load(name), name)]
    assert {("history",), ("history", "show"), ("ci", "review"), ("watch",), ("doctor",)} <= {*found}
    for words in found:
        assert "--ray-address" not in cli(*words, "--ray-address", unreachable, "--no-such-flag").err, words


def test_a_command_without_a_cluster_has_no_ray_address(cli: Cli, ndif_file: Path) -> None:
    assert cli("validate", ndif_file, "--ray-address", "http://x:8265").code == 64


@pytest.mark.parametrize(("words", "shown"), [
    (("evict", CHECKPOINT, "--dry-run"), [0, 1]), (("evict", f"{CHECKPOINT}/1", "--dry-run"), [1]),
    (("evict", CHECKPOINT, "--replica-id", "1", "--dry-run"), [1]), (("restart", CHECKPOINT, "--dry-run"), [0, 1]),
    (("restart", NDIF_KEY, "--dry-run"), [0, 1]), (("restart", f"{NDIF_KEY}/0", "--dry-run"), [0]),
    (("status", CHECKPOINT), [0, 1])])
def test_a_checkpoint_names_what_runs(
        cli: Cli, acting: ClusterStandIn, words: tuple[str, ...], shown: list[int]) -> None:
    live(acting, 0, 1)
    live(acting, 0, key="org/other")
    done = cli(*words)
    assert done.code == 0, done.err
    text = "".join((done.out + done.err).split())  # long names wrap
    assert [replica_id for replica_id in range(3) if f"{NDIF_KEY}/{replica_id}".replace(" ", "") in text] == shown
    assert "org/other" not in text


def test_a_checkpoint_names_the_model_of_a_rollout(cli: Cli, acting: ClusterStandIn, ndif_file: Path) -> None:
    live(acting, 0)
    done = cli("rollout", CHECKPOINT, "-f", ndif_file, "--dry-run", "--detailed-exitcode")
    assert done.code == 2, done.err
    assert NDIF_KEY in done.err


def test_a_checkpoint_of_several_models_is_refused_with_their_keys(cli: Cli, acting: ClusterStandIn) -> None:
    live(acting, 0)
    live(acting, 0, key=AT_STEP)
    done = cli("evict", CHECKPOINT, "--yes")
    assert (done.code, acting.writes()) == (64, [])
    assert f"write one of these: {shlex.quote(NDIF_KEY)} {shlex.quote(AT_STEP)}" in " ".join(done.err.split())
    assert cli("evict", NDIF_KEY, "--dry-run").code == 0


def test_with_a_file_a_checkpoint_means_the_model_of_its_fleet(
        cli: Cli, acting: ClusterStandIn, ndif_file: Path) -> None:
    live(acting, 0)
    live(acting, 0, key=AT_STEP, fleet="other")
    done = cli("evict", CHECKPOINT, "-f", ndif_file, "--dry-run")
    assert done.code == 0, done.err
    assert (NDIF_KEY in done.err, AT_STEP in done.err) == (True, False)


def test_an_unknown_replica_of_a_checkpoint_is_named_with_those_that_run(cli: Cli, acting: ClusterStandIn) -> None:
    live(acting, 0, 2)
    assert "has 0, 2" in cli("evict", f"{CHECKPOINT}/7", "--yes").err


@pytest.mark.parametrize("verb", [("deploy",), ("scale", "--replicas", "2")])
def test_the_hint_for_a_model_in_no_file_is_the_command_that_writes_its_entry(
        cli: Cli, acting: ClusterStandIn, ndif_file: Path, verb: tuple[str, ...],
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ndif_file.parent)
    for name in ("Qwen/Qwen3-0.6B", 'LanguageModel:{"repo_id": "Qwen/Qwen3-8B", "revision": "main"}', "-x y"):
        done = cli(verb[0], *verb[1:], "-f", ndif_file, "--yes", "--", name)
        command = done.err.partition("`")[2].partition("`")[0]
        assert done.code != 0
        assert cli(*shlex.split(command)[1:]).code == 0
        more = done.err.rpartition("add ")[2].split()
        started = cli(verb[0], *verb[1:], "-f", ndif_file, *more, "--yes", "--", name)
        assert started.code == 0, started.err
        assert acting.created()[-1].startswith(f"{name}/")


def test_the_hint_without_a_file_names_the_model(cli: Cli) -> None:
    done = cli("deploy", NDIF_KEY)
    quoted = shlex.quote(NDIF_KEY)
    assert done.code == 64
    assert f"fleetctl deploy {quoted} -f fleet.yaml; `fleetctl init --model {quoted}` writes one" in " ".join(
        done.err.split())
