"""Which command lines start a container, from which image, and which of these containers outlive the command."""

from __future__ import annotations

import shlex

import pytest

from fleetctl.fleetfile.command_line import _MAY_BE_DAEMON, find_container

RECIPE = ("podman run --rm --replace --name x --init --sig-proxy=false --log-driver=passthrough --pull=never "
          "--network=host --ipc=host --env 'FLEETCTL_*' --env CUDA_VISIBLE_DEVICES -v /m:/m:ro -w /tmp ")


@pytest.mark.parametrize(("line", "image"), [
    (RECIPE + "repo@sha256:00 python3 -m serve --port 1", "repo@sha256:00"),
    ("/usr/bin/podman --runtime=runc --log-level debug run -dit --rm -eA=b -p 8080:80 -p8081:81 img x", "img"),
    ("podman container run --rm -- img x", "img"),
    ("podman run --new-flag=value img x", "img"),
    ("podman run --rootfs /images/r sh", "/images/r"),
    ("apptainer exec --nv --bind /m:/m:ro --pwd /tmp -B /a /images/vllm.sif python3", "/images/vllm.sif"),
    ("apptainer -q instance start --nv /i.sif name", "/i.sif"),
    ("env A=b nice -n 5 podman run img", "img"),
    ("sh -c 'set -e; export A=$(FLEETCTL_PORT) && exec podman run -v /a:/b img x'", "img"),
    ("docker run --rm -it --gpus all img:1 serve", "img:1"),
    ("nerdctl -n x run img", None),
])
def test_the_image_of_a_command_line_is_found(line: str, image: str | None) -> None:
    container = find_container(shlex.split(line))
    assert container is not None
    assert container.image_on_node == image


@pytest.mark.parametrize("line", [
    "podman run --new-flag value img x", "podman --root /x run img", "podman --remote run img", "sudo podman run img",
    "podman run --rm $(IMAGE) x", "singularity run docker://x/y", "apptainer run relative.sif", "podman exec -it c sh",
    "bash -c \"podman run -e A='x;y' img\"", "docker compose up"])
def test_an_image_that_is_not_certain_is_not_named(line: str) -> None:
    container = find_container(shlex.split(line))
    assert container is not None
    assert container.image_on_node is None


@pytest.mark.parametrize(("line", "word"), [
    ("docker run img", 0), ("/usr/bin/docker -H unix:///x run --rm eng:1 python", 0),
    ("env A=b sudo -n docker run img", 4),
    ("A=b docker run img", 1), ("sh -c 'exec docker run img'", 2), ("env bash -lc 'cd /x\ndocker run img'", 3),
    ("timeout 5 docker start -a x", 2), ("docker compose up", 0), ("docker-compose up", 0), ("nerdctl run img", 0),
    ("ctr -n k8s.io run --rm docker.io/x:1 id sh", 0), ("podman --remote run img", 0), ("podman --url=x run img", 0),
])
def test_a_container_of_a_daemon_is_found_behind_wrappers_and_in_a_shell(line: str, word: int) -> None:
    container = find_container(shlex.split(line))
    assert container is not None
    assert (container.is_apart, container.word) == (True, word)
    assert _MAY_BE_DAEMON.search("\0".join(shlex.split(line)))


@pytest.mark.parametrize("line", [
    "vllm serve docker/model", "python serve.py docker run", "sudo -u docker vllm serve", "docker ps", "podman", "env",
    "", "sh -c 'echo done'", "llama-server --name podman run", "docker-tied img -- docker run"])
def test_other_commands_start_no_container(line: str) -> None:
    assert find_container(shlex.split(line)) is None


def test_a_runtime_of_ones_own_processes_is_not_apart() -> None:
    found = [find_container(line.split()) for line in ("podman run img", "apptainer exec /x.sif a")]
    assert [one and one.is_apart for one in found] == [False, False]
