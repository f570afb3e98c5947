"""The driver through a real library and a real program: NVML and `nvidia-smi` report the same for one host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, cast

import pytest
from nvidia_stand_in import Host, Nvidia, build

QUERY = """
import json, os, sys
from fleetctl.agent import driver
nvml = driver.load_nvml()
for line in sys.stdin:
    how, os.environ["NVML_STAND_IN"] = line.split()
    driver.load_nvml = lambda: nvml if how == "nvml" else None
    print(json.dumps(driver.query_driver(os.environ)), flush=True)
"""
QueryDriver = Callable[..., list[list[Any]]]


@pytest.fixture(scope="module")
def nvidia(tmp_path_factory: pytest.TempPathFactory) -> Nvidia:
    return build(tmp_path_factory.mktemp("nvidia"))


@pytest.fixture(scope="module")
def query_driver(nvidia: Nvidia, tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueryDriver]:
    """Query a host's driver as the agent does, in one process, because Ray's binding is slow to import."""
    env = {**os.environ, **nvidia.host(tmp_path_factory.mktemp("host") / "cards").env}
    with subprocess.Popen([sys.executable, "-c", QUERY], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as process:
        requests, answers = cast("IO[str]", process.stdin), cast("IO[str]", process.stdout)

        def query(host: Host, how: str = "nvml") -> list[list[Any]]:
            requests.write(f"{how} {host.path}\n")
            requests.flush()
            cards, trouble, lost = json.loads(answers.readline())
            assert (trouble or "").startswith("nvidia-smi: Unable" if lost and how == "smi" else "")
            assert lost in ({}, {"0": "GPU is lost"})
            return [[*card[:2], *(amount >> 20 for amount in card[2:5]), *card[5:]] for card in cards]

        yield query
        requests.close()


@pytest.mark.slow
def test_memory_and_processes_are_those_of_the_file_until_the_processes_end(
    nvidia: Nvidia, query_driver: QueryDriver, tmp_path: Path
) -> None:
    host = nvidia.host(tmp_path / "cards", "card GPU-a 81559 NVIDIA H100", "card GPU-b 81559 NVIDIA H100")
    with subprocess.Popen(["sleep", "1000"]) as stranger:
        host.use("GPU-b", stranger.pid, 20480)
        host.use("GPU-b", os.getpid(), 100)
        pids = sorted([stranger.pid, os.getpid()])
        assert query_driver(host) == [["0", "GPU-a", 81559, 0, 81559, False, False, False, [], ""],
                               ["1", "GPU-b", 81559, 20580, 60979, False, False, False, pids, ""]]
        assert [card[:5] for card in query_driver(host, "smi")] == [card[:5] for card in query_driver(host)]
        stranger.kill()
    assert query_driver(host)[1][3] == 100


@pytest.mark.slow
def test_mig_devices_and_memory_that_host_and_card_share_are_reported(
    nvidia: Nvidia, query_driver: QueryDriver, tmp_path: Path
) -> None:
    divided = nvidia.host(tmp_path / "mig", "card GPU-a 81559 NVIDIA H100", "part MIG-1 9856 H100 MIG 1g.10gb",
                          "part MIG-2 19968 H100 MIG 2g.20gb")
    divided.use("MIG-2", os.getpid(), 9000)
    assert [[card[1], card[3], *card[5:8]] for card in query_driver(divided)] == [
        ["GPU-a", 0, False, True, False], ["MIG-1", 0, True, False, False], ["MIG-2", 9000, True, False, False]]
    spark = nvidia.host(tmp_path / "spark", "card GPU-spark -1 NVIDIA GB10")
    [[number, uuid, total, used, free, *flags]] = query_driver(spark)
    host_total = int(Path("/proc/meminfo").read_text().split()[1]) >> 10
    assert [number, uuid, total, *flags] == ["0", "GPU-spark", host_total, False, False, True, [], ""]
    assert abs(total - used - free) <= 1


@pytest.mark.slow
def test_a_lost_card_does_not_hide_the_others_and_faults_of_memory_are_told(
    nvidia: Nvidia, query_driver: QueryDriver, tmp_path: Path
) -> None:
    host = nvidia.host(tmp_path / "cards", *(f"card GPU-{name} 81559 NVIDIA H100" for name in "abc"))
    host.fail("lost GPU-a")
    host.fail("ecc GPU-c 2")
    assert [[card[0], card[9]] for card in query_driver(host)] == [
        ["1", ""], ["2", "2 uncorrected memory errors since its last reset"]]
    assert [card[1] for card in query_driver(host, "smi")] == ["GPU-b", "GPU-c"]
    host.repair()
    assert [card[9] for card in query_driver(host)] == ["", "", ""]
