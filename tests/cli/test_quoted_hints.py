"""Commands in hints can be pasted into a shell, whatever characters a model key, file or branch contains."""

from __future__ import annotations

import subprocess
from pathlib import Path
from shlex import quote

import pytest
from cli_result import Cli
from cluster_stand_in import ClusterStandIn

KEY = "org/a$(id)"
QUOTED = f"'{KEY}'"


@pytest.fixture
def odd_fleet(fleet_file: Path) -> Path:
    """The fleet file, with a model key that a shell would expand."""
    fleet_file.write_text(fleet_file.read_text().replace("key: org/one", f"key: '{KEY}'"))
    return fleet_file


def test_deploy_suggests_a_quoted_scale(cli: Cli, cluster: ClusterStandIn, odd_fleet: Path) -> None:
    cluster.add_replica(KEY, 0, cluster.nodes[0]["node_id"], gpus=0)
    hint = f"`fleetctl scale {QUOTED} --replicas N -f {quote(str(odd_fleet))}`"
    assert hint in cli("deploy", KEY, "-f", odd_fleet, "--yes").err


def test_replace_suggests_a_quoted_evict(cli: Cli, cluster: ClusterStandIn, odd_fleet: Path) -> None:
    odd_fleet.write_text(odd_fleet.read_text().replace("replicas: 3", "replicas: 0", 1))
    assert f"`fleetctl evict {QUOTED}`" in cli("replace", KEY, "-f", odd_fleet, "--yes").err


def test_evict_suggests_a_quoted_evict(cli: Cli, cluster: ClusterStandIn, odd_fleet: Path) -> None:
    assert f"`fleetctl evict {QUOTED}`" in cli("evict", "--all", KEY, "-f", odd_fleet).err


def test_evict_suggests_the_quoted_flag_for_an_ambiguous_name(cli: Cli, cluster: ClusterStandIn) -> None:
    node = cluster.nodes[0]["node_id"]
    cluster.add_replica(f"{KEY}/3", 0, node, gpus=0)
    cluster.add_replica(KEY, 3, node, gpus=0)
    assert f"`{QUOTED} --replica-id 3`, or `'{KEY}/3'/ID`" in cli("evict", f"{KEY}/3", "--yes").err


@pytest.mark.parametrize(("words", "hint"), [
    (("deploy", "-f", KEY), f"fleetctl deploy {QUOTED}"),
    (("plan", "-out=my plan"), "'--out=my plan'"),
    (("plan", "-o=my plan"), "-o 'my plan'"),
    (("what-if", "-f", "4", "--scale", KEY), f"--scale '{KEY}=4'"),
])
def test_a_usage_error_suggests_quoted_words(cli: Cli, words: tuple[str, ...], hint: str) -> None:
    outcome = cli(*words)
    assert outcome.code == 64
    assert hint in outcome.err


def test_propose_suggests_a_quoted_push(cli: Cli, fleet_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fleet_file.parent
    monkeypatch.chdir(folder)
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "Ann")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "ann@example.com")
    for words in (("init", "-q", "-b", "main"), ("add", fleet_file.name), ("commit", "-q", "-m", "first")):
        subprocess.run(["git", *words], cwd=folder, check=True)
    done = cli("propose", "scale", "org/one", "--replicas", "5", "-f", fleet_file.name, "--branch", "a;b")
    assert done.code == 0, done.err
    assert "git push origin 'a;b'" in done.err
