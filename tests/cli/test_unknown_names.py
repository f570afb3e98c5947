"""A name of nothing that exists ends every command with 1, whatever it names; usage errors (64) are about the form."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from cluster_stand_in import ClusterStandIn

from fleetctl.cli.app import COMMANDS
from fleetctl.cli.ci import COMMANDS as CI_COMMANDS

FLEET = "-f fleet.yaml"
UNKNOWN = {
    "what-if": [f"{FLEET} --lose-node nope", f"{FLEET} --cordon nope", f"{FLEET} --cordon pool=nope",
                f"{FLEET} --scale org/nope=2", f"{FLEET} --add-node like:nope", "-f nope.yaml --lose-node node-a"],
    "capacity": [f"{FLEET} --model org/nope", f"{FLEET} --selector team=nope", "-f nope.yaml"],
    "map": [f"{FLEET} --selector team=nope", "--inventory nope.json"],
    "plan": [f"{FLEET} --target org/nope", f"{FLEET} --exclude org/nope", f"{FLEET} --selector team=nope",
             f"{FLEET} --inventory nope.json", "-f nope.yaml"],
    "apply": [f"{FLEET} --target org/nope --yes", f"{FLEET} --selector team=nope --yes", "nope.fleetplan --yes",
              "--attach nope", "nope.yaml --yes"],
    "deploy": [f"org/nope {FLEET} --yes", "org/one -f nope.yaml --yes"],
    "scale": [f"org/nope {FLEET} --replicas 2 --yes"],
    "replace": [f"org/nope {FLEET} --yes"],
    "rollout": [f"org/nope {FLEET} --yes", f"{FLEET} --selector team=nope --yes", "-f nope.yaml --yes"],
    "evict": ["org/nope --yes", "org/nope/0 --yes", "org/one/7 --yes", "org/one --replica-id 7 --yes",
              f"org/nope {FLEET} --yes"],
    "restart": ["org/nope --yes", "org/one/7 --yes"],
    "pause": ["org/nope", f"org/nope {FLEET}", "--fleet nope"],
    "resume": ["org/nope", "--fleet nope"],
    "stop": ["nope"],
    "status": ["org/nope", f"org/nope {FLEET}", f"{FLEET} --selector team=nope"],
    "logs": ["org/nope", "org/one/7"],
    "endpoints": ["org/nope"],
    "history": ["show nope", "-f nope.yaml"],
    "cordon": ["nope"], "uncordon": ["nope"], "slots": ["nope 2", "nope --clear"],
    "drain": [f"nope {FLEET} --yes"],
    "prefetch": [f"org/nope {FLEET}", f"org/one {FLEET} --node nope"],
    "prune": ["-f nope.yaml --yes", f"{FLEET} --nodes pool=nope --yes"],
    "model": ["describe nope", "describe hf:nope"], "weights": ["index nope"],
    "propose": [f"scale org/nope --replicas 2 {FLEET}"],
    "explain": ["nope", "models.nope", "FL999", "INSUFFICENT_GPU"], "schema": ["nope"],
    "mcp": ["-f nope.yaml", f"{FLEET} --context nope"],
    "context": ["use nope", "show nope", "unset nope"],
    "show": ["nope.fleetplan"], "diff": ["nope.yaml fleet.yaml", f"nope {FLEET}"],
    "validate": ["nope.yaml"], "fmt": ["nope.yaml"], "render": ["nope.yaml"], "import": ["nope.yaml"],
    "doctor": ["-f nope.yaml"], "init": ["new.yaml --inventory nope.json"],
    "inventory": ["--inventory nope.json", "--context nope"],
}
IN_CI = ["validate nope.yaml", "review -f nope.yaml", f"review {FLEET} --inventory nope.json",
         "apply nope.fleetplan", "rollout -f nope.yaml", "drift -f nope.yaml"]
NAMELESS = {"release-nodes", "completion", "demo", "watch"}
"""A fleet without requests has nothing to withdraw; the shells are a closed list; a watch waits for what is not yet."""


@pytest.fixture
def folder(fleet_file: Path, cluster: ClusterStandIn, monkeypatch: pytest.MonkeyPatch) -> Path:
    cluster.add_replica("org/one", 0, cluster.nodes[0]["node_id"])
    monkeypatch.chdir(fleet_file.parent)
    return fleet_file.parent


def test_every_command_that_takes_a_name_is_in_the_table() -> None:
    assert UNKNOWN.keys() | NAMELESS | {"ci"} == COMMANDS.keys()
    assert CI_COMMANDS.keys() == {"validate", "review", "apply", "rollout", "drift"}


CASES = [(name, one) for name, found in {**UNKNOWN, "ci": IN_CI}.items() for one in found]


@pytest.mark.parametrize(("command", "arguments"), CASES)
def test_an_unknown_name_exits_with_1_and_is_named(cli, folder: Path, command: str, arguments: str) -> None:
    result = cli(command, *shlex.split(arguments))
    assert result.code == 1, result.err
    assert "error: " in result.err + result.out or "error FL" in result.err + result.out
    assert "nope" in result.err + result.out or "7" in result.err or "FL999" in result.err or "GPU" in result.err
