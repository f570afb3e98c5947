"""What the agent knows of container runtimes: their words for a missing image, and the images of a node."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fleetctl.agent.processes import image_is_missing, lacks_image

MISSING = [
    (125, "Error: localhost/nope:1: image not known"),
    (125, "Trying to pull registry.invalid/vllm:1...\nError: initializing source docker://registry.invalid/vllm:1: x"),
    (125, "Error: short-name \"vllm\" did not resolve to an alias and no unqualified-search registries are defined"),
    (125, "Unable to find image 'x:1' locally\ndocker: Error response from daemon: pull access denied for x"),
    (125, "docker: Error response from daemon: No such image: eng:2.\nSee 'docker run --help'."),
    (125, "Error: 2 errors occurred while pulling:\n * initializing source docker://x:latest: manifest unknown"),
    (255, "FATAL:   could not open image /x.sif: failed to retrieve path for /x.sif: lstat /x.sif: no such file"),
]
OTHER = [
    (1, "Error: localhost/nope:1: image not known"),
    (125, "Error: unknown flag: --gpu"),
    (125, "the image not known to us is drawn"),
    (126, "Error: crun: open executable: Permission denied: OCI permission denied"),
    (255, "FATAL:   container creation failed: mount /models->/models error"),
    (0, "Error: localhost/nope:1: image not known"),
]


@pytest.mark.parametrize(("code", "output"), MISSING)
def test_the_words_of_runtimes_for_a_missing_image_are_known(code: int, output: str) -> None:
    assert image_is_missing(code, f"a line before\n{output}\n")


@pytest.mark.parametrize(("code", "output"), OTHER)
def test_another_end_is_no_missing_image(code: int, output: str) -> None:
    assert not image_is_missing(code, output)


def runtime(folder: Path, name: str, script: str) -> dict[str, str]:
    """Write a runtime of this name that knows only the image `here`, and return the environment that finds it."""
    program = folder / name
    program.write_text(f"#!/bin/sh\nfor last; do :; done\necho \"$@\" >> {folder}/asked\n{script}\n")
    program.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def test_podman_is_asked_for_an_image_and_only_its_no_counts(tmp_path: Path) -> None:
    environ = runtime(tmp_path, "podman", '[ "$last" = broken ] && exit 125; [ "$last" = here ]')
    assert lacks_image("podman", "here", environ) is None
    assert lacks_image("podman", "gone", environ) == "podman has no image gone"
    assert lacks_image("podman", "broken", environ) is None
    assert (tmp_path / "asked").read_text().splitlines()[0] == "image exists -- here"


def test_docker_that_cannot_be_reached_lacks_nothing(tmp_path: Path) -> None:
    environ = runtime(tmp_path, "docker", 'echo "Error: $ANSWER" >&2; exit 1')
    assert lacks_image("docker", "x", {**environ, "ANSWER": "Cannot connect to the Docker daemon"}) is None
    assert lacks_image("docker", "x", {**environ, "ANSWER": "No such image: x"}) == "docker has no image x"


def test_an_image_that_is_a_file_or_a_folder_is_looked_up(tmp_path: Path) -> None:
    assert lacks_image("apptainer", str(tmp_path), {}) is None
    assert lacks_image("apptainer", f"{tmp_path}/x.sif", {}) == f"there is no {tmp_path}/x.sif"


def test_a_runtime_that_is_not_installed_lacks_no_image(tmp_path: Path) -> None:
    assert lacks_image("podman", "x", {"PATH": str(tmp_path)}) is None
