"""How many requests are left, as engines say: a claim that may be missing, odd, late or without an end."""

from __future__ import annotations

import math
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest
from engine_run import engine_like
from servers import Serve

from fleetctl.agent import ending
from fleetctl.agent.cluster import GONE, ActorRecord
from fleetctl.agent.messages import Mark, Place
from fleetctl.agent.report import compact
from fleetctl.agent.wire import document_of


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["vllm", "sglang", "llama.cpp", "tgi", "none"])
def test_the_requests_of_an_engine_are_counted(kind: str) -> None:
    command, engine = engine_like("--like", kind)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        engine.await_serving()
        known = kind != "none"
        assert ending.requests_at("127.0.0.1", engine.port) == (0 if known else None)
        with engine.working():
            engine.be(waiting=2)
            assert ending.requests_at("127.0.0.1", engine.port) == (3 if known else None)
    finally:
        process.terminate()
        process.wait(300)
    assert ending.requests_at("127.0.0.1", engine.port) is None


@pytest.mark.parametrize(("text", "count"), [
    ("", None), ("vllm:num_requests_running 0", None),
    ("vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n", 0),
    ('sglang:num_running_reqs{dp="0"} 1\nsglang:num_running_reqs{dp="1"} 2.0\nsglang:num_queue_reqs 4 1712345\n', 7),
    ('vllm:num_requests_running{a="} x"} 1e0\n# vllm:num_requests_running 9\nvllm:num_requests_waiting 0\n', 1),
    ("vllm:num_requests_running_total 0\nvllm:num_requests_waiting 0\n", None)])
def test_both_gauges_of_an_engine_are_needed_and_their_samples_add_up(text: str, count: float | None) -> None:
    assert ending.count_requests(text) == count


def test_what_is_no_number_does_not_say_that_no_request_is_left() -> None:
    text = "vllm:num_requests_running {}\nvllm:num_requests_waiting 0\n"
    assert math.isnan(ending.count_requests(text.format("NaN")) or 0)
    with pytest.raises(ValueError, match="could not convert"):
        ending.count_requests(text.format("none"))


@pytest.mark.slow
def test_an_engine_that_does_not_answer_in_time_does_not_tell(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "ANSWER_S", 0.2)
    assert ending.requests_at("127.0.0.1", serve().port) is None


MEMBERS = [Place(node_id="a", ip="10.0.0.1", port=8000, rank=0), Place(node_id="b", ip="10.0.0.2", port=8001, rank=1)]


@pytest.mark.parametrize(("record", "engines"), [
    (GONE, []), (ActorRecord("ALIVE", True, "", ""), []), (ActorRecord("ALIVE", True, "odd", ""), None),
    (ActorRecord("ALIVE", True, "{}", ""), None),
    (ActorRecord("ALIVE", True, compact(document_of(Mark(members=MEMBERS))), ""), [("10.0.0.1", 8000)]),
    (ActorRecord("ALIVE", True, compact(document_of(Mark(level="WARM", members=MEMBERS))), ""), []),
    (ActorRecord("ALIVE", True, compact(document_of(Mark(members=[MEMBERS[0]._replace(ip="10.9.9.9")]))), ""), None)],
    ids=["gone", "starting", "another repr", "no members", "gang", "WARM", "an address that is not its node's"])
def test_only_serving_engines_at_addresses_of_their_nodes_are_asked(
    monkeypatch: pytest.MonkeyPatch, record: ActorRecord, engines: Any
) -> None:
    monkeypatch.setattr(ending, "cluster", SimpleNamespace(
        actor_record=lambda _: record, is_at=lambda node_id, ip: (node_id, ip) in {("a", "10.0.0.1")}))
    assert ending.serving_engines("id") == engines


def test_while_rays_head_does_not_answer_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def down(_: str) -> None:
        raise ConnectionError

    monkeypatch.setattr(ending, "cluster", SimpleNamespace(actor_record=down))
    assert ending.serving_engines("id") is None
