"""The stub engine over real HTTP: its responses, when it is ready, how it ends, and how the members of a gang join."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from fleetctl.demo.stub_engine import Gang
from tests.external_programs import free_port

pytestmark = pytest.mark.slow


@dataclass
class Running:
    process: subprocess.Popen[str]
    port: int

    def request(self, path: str, body: object = None) -> tuple[int, dict]:
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", data=data, timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def wait_for_health(self, status: int) -> dict:
        deadline, last = time.monotonic() + 300, ""
        while time.monotonic() < deadline:
            try:
                found, body = self.request("/health")
                if found == status:
                    return body
                last = f"{found} {body}"
            except OSError as error:
                last = str(error)
            time.sleep(0.05)
        raise AssertionError(f"/health was not {status} in 300 s: {last}; exit code {self.process.poll()}")


Start = Callable[..., Running]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: str, **injected: str) -> Running:
        port = free_port()
        process = subprocess.Popen(
            [sys.executable, "-m", "fleetctl.demo.stub_engine", "--host", "127.0.0.1", "--port", str(port), *arguments],
            env={"PATH": os.environ["PATH"], **{f"FLEETCTL_{name}": value for name, value in injected.items()}},
            stdout=subprocess.PIPE, text=True,
        )
        started.append(process)
        return Running(process, port)

    yield run
    for process in started:
        process.kill()
        process.communicate()


def test_the_engine_lists_its_model_and_names_the_replica(start: Start) -> None:
    engine = start(MODEL="org/m", REPLICA_ID="3")
    engine.wait_for_health(200)
    assert engine.request("/v1/models")[1]["data"][0]["id"] == "org/m"
    status, answer = engine.request("/v1/completions", {"model": "org/m", "prompt": "Hello"})
    assert status == 200
    assert answer["choices"][0]["text"] == "Hello (replica 3 of org/m, on GPU none)"
    assert answer["usage"]["total_tokens"] > 1


def test_a_chat_request_gets_a_chat_response(start: Start) -> None:
    engine = start("--model", "org/m")
    engine.wait_for_health(200)
    _, answer = engine.request("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]})
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"]["content"].startswith("Hi (replica 0 of org/m")


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/completions", {"model": "org/other", "prompt": "x"}, 404),
        ("/v1/completions", b"{not json", 400),
        ("/v1/completions", {"messages": []}, 400),
        ("/v1/chat/completions", {"messages": []}, 400),
        ("/v1/completions", [1], 400),
        ("/nowhere", None, 404),
        ("/nowhere", {"a": 1}, 404),
    ],
)
def test_a_bad_request_is_refused_in_openai_form(start: Start, path: str, body: object, status: int) -> None:
    engine = start(MODEL="org/m")
    engine.wait_for_health(200)
    found, answer = engine.request(path, body)
    assert found == status
    assert answer["error"]["code"] == status


def test_a_starting_engine_listens_but_is_not_healthy(start: Start) -> None:
    engine = start("--startup-delay", "60", MODEL="org/m")
    assert engine.wait_for_health(503)["status"] == "loading weights"
    assert engine.request("/v1/completions", {"prompt": "x"})[0] == 503


def test_an_engine_set_to_fail_ends_after_the_given_time_and_logs_that_last(start: Start) -> None:
    engine = start("--fail-after", "0.2", "--exit-code", "7")
    output, _ = engine.process.communicate(timeout=300)
    assert engine.process.returncode == 7
    assert output.splitlines()[-1] == "stub-engine: failing as --fail-after asks, with exit code 7"


def test_sigterm_ends_the_engine_with_exit_code_0(start: Start) -> None:
    engine = start()
    engine.wait_for_health(200)
    engine.process.send_signal(signal.SIGTERM)
    assert engine.process.wait(timeout=300) == 0


def test_a_port_in_use_is_an_error_not_a_traceback(start: Start) -> None:
    first = start()
    first.wait_for_health(200)
    second = start("--port", str(first.port))
    output, _ = second.process.communicate(timeout=300)
    assert second.process.returncode == 1
    assert output.startswith("stub-engine: cannot listen")


def gang(start: Start, ranks: range, size: int, port: int) -> list[Running]:
    where = {"GROUP_SIZE": str(size), "LEADER_ADDRESS": "127.0.0.1", "LEADER_PORT": str(port)}
    return [start(MODEL="org/big", RANK=str(rank), **where) for rank in ranks]


def test_a_gang_is_healthy_only_when_every_rank_has_joined(start: Start) -> None:
    port = free_port()
    leader, first = gang(start, range(2), 3, port)
    first.wait_for_health(200)
    assert leader.wait_for_health(503)["status"] == "waiting for ranks [2]"
    gang(start, range(2, 3), 3, port)
    assert leader.wait_for_health(200)["ranks"] == 3
    assert "a gang of 3" in leader.request("/v1/completions", {"prompt": "x"})[1]["choices"][0]["text"]


def test_workers_may_start_before_their_leader(start: Start) -> None:
    port = free_port()
    (worker,) = gang(start, range(1, 2), 2, port)
    assert worker.wait_for_health(503)["status"] == "waiting for ranks [0]"
    (leader,) = gang(start, range(1), 2, port)
    leader.wait_for_health(200)


def test_a_gang_meets_at_an_ipv6_address_too(start: Start) -> None:
    where = {"GROUP_SIZE": "2", "LEADER_ADDRESS": "::1", "LEADER_PORT": str(free_port()), "HOST": "::1"}
    leader, _ = (start("--host", "::", RANK=str(rank), **where) for rank in range(2))
    assert leader.wait_for_health(200)["ranks"] == 2
    leader.process.terminate()
    assert f"serving stub on [::]:{leader.port}, rank 0 of 2" in leader.process.communicate(timeout=300)[0]


@pytest.mark.parametrize("victim", [0, 1])
def test_when_one_rank_ends_the_other_ends(start: Start, victim: int) -> None:
    ranks = gang(start, range(2), 2, free_port())
    ranks[0].wait_for_health(200)
    ranks[victim].process.kill()
    assert ranks[1 - victim].process.wait(timeout=300) == 1


def test_a_rank_outside_the_gang_is_not_accepted() -> None:
    leader = Gang(rank=0, size=3)
    assert [leader.enter(rank) for rank in (0, 1, 1, 3)] == [False, True, False, False]
    assert leader.missing() == [2]
    leader.leave(1)
    assert leader.missing() == [1, 2]


def test_a_single_engine_waits_for_no_rank() -> None:
    assert Gang.from_environment({}, "127.0.0.1").missing() == []
