"""A replica that sends its weights to others keeps responding: sending has a lower priority than the engine."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import hashing_engine
import pytest
from other_node import Node
from weights_world import files_in, model, request

from fleetctl.agent.weights.connections import NICE
from fleetctl.agent.weights.table import MOST_FETCHES

RECEIVERS = 4


@contextmanager
def two_cores() -> Iterator[None]:
    """Keep this process and its children on two cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:2])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def threads_of(pid: int) -> dict[str, tuple[int, int]]:
    """The nice value of each thread, and the ticks that it has used."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            fields = (task / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # the thread has ended
            continue
        found[task.name] = int(fields[16]), int(fields[11]) + int(fields[12])
    return found


@pytest.mark.slow
def test_an_engine_answers_all_requests_while_its_node_sends_weights_to_four_others(tmp_path: Path) -> None:
    artifact = model(tmp_path / "big", rows=1 << 15)
    with ExitStack() as opened, two_cores():
        engine = opened.enter_context(subprocess.Popen(
            [sys.executable, hashing_engine.__file__], stdout=subprocess.PIPE, text=True))
        opened.callback(engine.kill)
        assert engine.stdout is not None
        client = http.client.HTTPConnection("127.0.0.1", int(engine.stdout.readline()), timeout=60)
        opened.callback(client.close)

        source = Node(tmp_path / "a", artifact, origins=[{"path": str(tmp_path / "big")}])
        opened.callback(source.end)
        described = source.read_report("serving")["serving"]
        first = threads_of(source.process.pid)
        path = f"/v2/{artifact}/files/model-00001-of-00002.safetensors"
        held, answer = request(described["address"], path)  # the sending thread runs to the end
        opened.callback(held.close)
        assert answer.status == 200
        sending = {name: nice for name, (nice, _) in threads_of(source.process.pid).items() if name not in first}
        assert list(sending.values()) == [NICE]

        receivers = [Node(tmp_path / f"n{number}", artifact, sources=[described])
                     for number in range(RECEIVERS)]
        for one in receivers:
            opened.callback(one.end)
        pool = opened.enter_context(ThreadPoolExecutor(RECEIVERS))
        done, requests = [pool.submit(one.read_report, "serving", "failed") for one in receivers], 0
        while not all(one.done() for one in done):
            client.request("GET", f"/{requests}")
            answer = client.getresponse()
            assert (answer.status, answer.read()) == (200, hashing_engine.answer_to(f"/{requests}"))
            requests += 1
            for name, (nice, ticks) in threads_of(source.process.pid).items():
                assert nice == NICE or name in first or ticks <= 1, "senders have a low priority from the start"
        got = [one.result() for one in done]
        assert [one.get("source") for one in got] == ["peer"] * RECEIVERS
        assert all(files_in(one["folder"]) == files_in(tmp_path / "big") for one in got)
        assert requests > 0
        assert source.stop()["most"] <= MOST_FETCHES
