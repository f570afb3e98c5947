"""Every command of README, docs and `--help` runs as printed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from cluster_stand_in import ClusterStandIn, all_ready, event, serve, summary
from in_process import run_here
from model_keys import NDIF_KEY
from printed import CLUSTER, PAGES, ROOT, Command, Reader, blocks, contains_output, printed_in_help, succeeded

from fleetctl.demo.cluster import DEMO_NODES
from fleetctl.inventory.engine_log import log_name
from tests.sizing.model_server import hub_of, serving
from tests.sizing.test_describe import write_model

BLOCKS = [*(block for page in PAGES for block in blocks(page)), *printed_in_help()]
NOT_RUN = re.compile(
    r"demo (up|down|run)|watch |mcp |propose (?!.*--dry-run)|ask\.py|(endpoints|logs|status) .*--follow")
"""Commands that tests/demo runs on a real Ray, that end only with Ctrl-C or their client, or that need Prometheus or a
git identity."""
CHANGING = {"replace", "rollout"}
"""What they do needs a cluster that changes: tests/cli/test_*_command.py and tests/e2e have one. Here they plan it."""

ENGINE = "engine: {command: [vllm, serve], args: [--port, $(FLEETCTL_PORT)], readiness: {http: {path: /health}}}"
MODELS = ("openai-community/gpt2", "meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-70B", "org/model")
PROD = "apiVersion: fleetctl/v1\nkind: Fleet\nmetadata: {name: prod}\nspec:\n  models:\n" + "".join(
    f"  - key: {key}\n    labels: {{team: nlp}}\n    replicas: 1\n"
    f"    workers: [{{name: main, members: [{{resources: {{gpus: 1}}, {ENGINE}}}]}}]\n"
    for key in MODELS)
CONFIRMED = {"apply", "deploy", "doctor", "drain", "evict", "prune", "release-nodes", "restart", "scale", "stop"}
RUN = "fleetctl-apply-8dd5457ba23d"


@pytest.fixture
def cluster() -> Iterator[ClusterStandIn]:
    """The nodes of the demo and one more, with some replicas, two ended applies and a running one."""
    stand_in = ClusterStandIn(on_submit=lambda request: run_agent(stand_in, request))
    ids = {node.name: stand_in.add_node(node.name, node.gpus, **node.all_labels()) for node in DEMO_NODES}
    stand_in.add_node("h100-1")
    for key, number, node in (("openai-community/gpt2", 0, "node-a"), ("openai-community/gpt2", 1, "node-a"),
                              ("openai-community/gpt2", 2, "node-a"),
                              ("Qwen/Qwen3-235B-A22B", 0, "node-b")):
        stand_in.add_replica(key, number, ids[node], fleet="prod", gpus=10_000)
        stand_in.log_files[ids[node], log_name("fleet", key, number, "main", 0, 0)] = "ready\n"
    mark = json.loads(stand_in.actors[1]["repr_name"])  # the mark of gpt2/1
    mark["members"][0]["weights"] = {"artifact": "a" * 64, "view": None, "whole": True, "port": 9, "bytes": 522 << 20}
    stand_in.actors[1]["repr_name"] = json.dumps(mark)
    stand_in.log_files[ids["node-c"], log_name("fleet", "Qwen/Qwen3-Coder-480B", 0, "main", 0, 1)] = "it has ended\n"
    for number, job in enumerate((RUN, "fleetctl-apply-e61455000000"), start=1):
        log = event(0, "version", "fleetctl agent", version="1.0") + summary(1)
        stand_in.add_job(job, ("SUCCEEDED", log), start_time=number, verb="apply", fleet="prod", create="0").step()
    stand_in.add_job("fleetctl-apply-1", ("RUNNING", ""), ("SUCCEEDED", log), verb="apply", fleet="prod").step()
    with serve(stand_in):
        yield stand_in


def run_agent(stand_in: ClusterStandIn, request: dict[str, Any]) -> list[tuple[str, str]]:
    """An agent: planned replicas become ready, evicted ones are gone, and every node has its weights.

    Those of the fleet `ndif` run from then on.
    """
    if "plan" in request:
        for action in request["plan"]["actions"] if request["plan"]["fleet"]["name"] == "ndif" else ():
            stand_in.add_replica(action["model"], action["replicaId"], action["members"][0]["nodeId"], fleet="ndif",
                                 gpus=1_000)
        return all_ready(request)[-1:]
    if "nodes" in request or "groups" in request or "dryRun" in request:
        output = event(0, "version", "fleetctl agent", version="1.0")
        for node_id, members in request.get("nodes", {}).items():
            artifacts = [one["weights"]["artifact"] for one in members if "atOnce" in request]
            output += "".join(event(1, "weightsFetched", nodeId=node_id, artifact=artifact, fetched={"source": "disk"})
                            for artifact in artifacts) or event(1, "weightsCached", nodeId=node_id)
        return [("SUCCEEDED", output + summary(1))]
    rows = [{"model": one["model"], "replicaId": one["replicaId"], "outcome": "gone"} for one in request["replicas"]]
    return [("SUCCEEDED", event(0, "version", "fleetctl agent", version="1.0") + summary(1, *rows))]


@pytest.fixture(scope="module")
def repositories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two repositories: a fresh clone, and the reader's own."""
    both = tmp_path_factory.mktemp("repositories")
    shutil.copytree(ROOT / "fleets", both / "clone" / "fleets")
    (both / "yours").mkdir()
    write_own_repository(both / "yours")
    for one in both.iterdir():
        git(one)
    return both


def write_own_repository(folder: Path) -> None:
    """Write the files of the reader: a fleet file, a saved snapshot, files of other systems."""
    sources = ROOT / "tests" / "importers" / "sources"
    (folder / "fleets").mkdir()
    (folder / "fleets" / "prod.yaml").write_text(PROD)
    for name in ("fleet.yaml", "old.yaml", "new.yaml"):
        (folder / name).write_text(PROD)
    (folder / "ndif.yaml").write_text(PROD.replace("name: prod", "name: ndif").replace(
        f"key: {MODELS[0]}", f"""key: '{NDIF_KEY.replace("openai-community/gpt2", "EleutherAI/gpt-j-6b")}'"""))
    shutil.copy(ROOT / "fleets" / "research-lab" / "lab.json", folder / "snapshot.json")
    (folder / "models" / "Qwen3-8B").mkdir(parents=True)
    write_model(folder / "models" / "Qwen3-8B")
    shutil.copytree(sources / "modelplane-gang", folder / "modelplane")
    shutil.copytree(sources / "lws-gang", folder / "deployments")
    shutil.copy(next((sources / "serve-llm").iterdir()), folder / "serve_config.yaml")
    for file in (*(sources / "the-page").iterdir(), *(sources / "modelplane-gang").iterdir()):
        shutil.copy(file, folder / file.name)


def git(folder: Path) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    for words in (["init", "--quiet", "--initial-branch", "main"], ["add", "."], [*identity, "commit", "-qm", "fleets"],
                  ["tag", "v1.4"], ["tag", "v1.5"], ["update-ref", "refs/remotes/origin/main", "HEAD"]):
        subprocess.run(["git", *words], cwd=folder, check=True)


@pytest.fixture
def hub(repositories: Path) -> Iterator[str]:
    """A hub of models, each of which is the same tiny one."""
    with serving(hub_of(repositories / "yours" / "models" / "Qwen3-8B", [])) as (url, _):
        yield url


@pytest.fixture
def type_in(cluster: ClusterStandIn, hub: str, repositories: Path, tmp_path: Path
            ) -> Callable[[str, Command], tuple[int, str]]:
    """Type a command in "clone" or "yours"; return its exit code and output."""
    shutil.copytree(repositories, tmp_path, dirs_exist_ok=True)
    contexts = tmp_path / ".config" / "fleetctl" / "config.yaml"
    contexts.parent.mkdir(parents=True)
    contexts.write_text(f"contexts: {{staging: {{address: '{cluster.url}'}}}}\n")
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(tmp_path), "FLEETCTL_ADDRESS": cluster.url,
           "HF_ENDPOINT": hub}

    def run(where: Path, arguments: list[str], stdin: str) -> tuple[int, str, str]:
        confirmation = ["--yes"] if arguments[0] in CONFIRMED and "--attach" not in arguments else []
        if arguments[0] in CHANGING and "--dry-run" not in arguments:
            confirmation = ["--dry-run"]
        done = run_here(*arguments, *confirmation, env=env, stdin=stdin, folder=where)
        return done.returncode, done.stdout, done.stderr

    def typed(where: str, command: Command) -> tuple[int, str]:
        cluster.jobs = deepcopy(jobs)  # a page may apply the same plan twice, or stop an apply
        if "prod.fleetplan" in command.text and not (tmp_path / "yours" / "prod.fleetplan").exists():
            assert run(tmp_path / "yours", ["plan", "-f", "fleets/prod.yaml", "-o", "prod.fleetplan"], "")[0] == 0
        return readers[where].type(command)

    jobs = deepcopy(cluster.jobs)
    readers = {name: Reader(tmp_path / name, cluster.url, run) for name in ("clone", "yours")}
    return typed


@pytest.mark.slow
@pytest.mark.parametrize("page", dict.fromkeys(block.page for block in BLOCKS))
def test_every_printed_command_runs_as_printed(page: str, type_in: Callable[[str, Command], tuple[int, str]]) -> None:
    for block in BLOCKS:
        for command in block.commands if block.page == page else ():
            if not NOT_RUN.search(command.text):
                code, output = type_in("yours" if block.in_own_repository else "clone", command)
                assert succeeded(command, code), f"$ {command.text}\n(exit code {code})\n{output}"
                if "--inventory lab.json" in command.text or command.text.startswith("fleetctl diff main"):
                    assert contains_output(command.output, output), output


def test_a_folder_of_fleets_is_one_fleet() -> None:
    """The pages print `-f fleets/` everywhere, so it must work in a clone too."""
    assert run_here("validate", "-f", ROOT / "fleets", env={}).returncode == 0
    assert CLUSTER in (ROOT / "README.md").read_text()


def test_mistakes_on_a_page_are_detected(type_in: Callable[[str, Command], tuple[int, str]]) -> None:
    for text in ("fleetctl plan -f fleets/prod.yaml --no-flag", "fleetctl plan -f fleets/lab.yaml", "make nothing"):
        code, _ = type_in("yours", Command(text))
        assert not succeeded(Command(text), code)
    assert not contains_output(("...", "not there"), "something else")
    assert sum(len(block.commands) for block in BLOCKS) > 120
