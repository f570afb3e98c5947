"""docs/containers.md: its recipes are valid engines, and its script ties a container to its client."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from fleetctl.fleetfile.command_line import find_container
from fleetctl.fleetfile.load import inspect_bytes
from fleetctl.fleetfile.sources import SourceBytes
from fleetctl.importers.container import PODMAN
from tests.agent.marked_processes import eventually

PAGE = (Path(__file__).parents[2] / "docs" / "containers.md").read_text(encoding="utf-8")
ENGINES = [yaml.safe_load(text)["engine"] for text in re.findall(r"```yaml\n(engine:.*?)```", PAGE, flags=re.DOTALL)]
WEIGHTS = {"index": "a" * 64, "from": [{"path": "/models/m"}]}
STUB = """#!/bin/sh
exec 3<&0
while [ "$1" != sh ]; do shift; done
export ENDED="$(dirname "$0")/ended"
trap 'kill -TERM $container' TERM
setsid sh -c 'exec 4<&0; trap "kill -TERM \\$tied" TERM
"$@" <&4 & tied=$!
while kill -0 $tied 2>/dev/null; do wait $tied; echo $? > "$ENDED"; done
kill -KILL -$$' first "$@" <&3 & container=$!
while kill -0 $container 2>/dev/null; do wait $container; done
exit $(cat "$ENDED")
"""
"""A docker whose container is in a session of its own, outlives this client, and ends with its first process."""
ENGINE = "trap 'echo stops; sleep 0.2; echo stopped; exit 7' TERM; echo $$ started; while :; do sleep 0.05; done"


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine["command"][0])
def test_a_recipe_is_a_valid_engine_without_a_warning(engine: dict[str, object]) -> None:
    member = {"resources": {"gpus": 1}, "engine": engine, "weights": WEIGHTS}
    fleet = {"apiVersion": "fleetctl/v1", "kind": "Fleet", "metadata": {"name": "lab"}, "spec": {"models": [
        {"key": "m", "replicas": 1, "workers": [{"name": "main", "members": [member]}]}]}}
    problems = inspect_bytes([SourceBytes("fleet.yaml", yaml.safe_dump(fleet).encode())]).problems
    assert [str(problem) for problem in problems if "weights" not in str(problem)] == []


def test_the_images_of_the_recipes_are_read_from_their_command_lines() -> None:
    found = [find_container(engine["command"]) for engine in ENGINES]
    images = [one.image_on_node.partition("@")[0] if one and one.image_on_node else None for one in found]
    assert images == ["docker.io/vllm/vllm-openai", None, "/images/vllm.sif", None]


def test_an_import_writes_the_command_of_the_page() -> None:
    assert ENGINES[0]["command"][:len(PODMAN)] == list(PODMAN)


@pytest.fixture
def tied(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start the page's script with a stub for docker, and its engine."""
    [script] = re.findall(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL)
    for name, text in (("docker", STUB), ("docker-tied", script)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    started: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [str(tmp_path / "docker-tied"), "-e", "A B", "image", "--", "sh", "-c", ENGINE], text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True,
            env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_the_script_passes_the_stop_signal_on_and_waits_for_the_container(tied: Callable[..., subprocess.Popen[str]]
                                                                           ) -> None:
    process = tied()
    assert process.stdout is not None
    assert "started" in process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert process.wait(300) == 7
    assert process.stdout.read() == "stops\nstopped\n"


@pytest.mark.slow
def test_the_container_ends_when_the_script_and_the_client_are_killed(tied: Callable[..., subprocess.Popen[str]]
                                                                       ) -> None:
    process = tied()
    assert process.stdout is not None
    engine = int(process.stdout.readline().split()[0])
    os.killpg(process.pid, signal.SIGKILL)
    assert process.stdout.read() == "stops\nstopped\n", "the end of this output is that of the container"
    eventually(lambda: not Path(f"/proc/{engine}").exists(), "its first process is gone")
