"""Which process's server responds on an engine's port, against real processes."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from servers import Serve

from fleetctl.agent import ports
from fleetctl.agent.ports import Ownership, PortTaken

LOOPBACK = "127.0.0.1"


class Engine(ports.Tree):
    """An engine with these processes; counts how many times they are listed."""

    def __init__(self, *pids: int) -> None:
        self.pids = list(pids)
        self.listings = 0

    def processes(self) -> Iterator[int]:
        self.listings += 1
        yield from self.pids

    def has(self, pid: int) -> bool:
        return pid in self.pids


@pytest.mark.parametrize("host", [LOOPBACK, "::1"])
def test_the_engines_own_answer_counts_and_is_checked_once(serve: Serve, host: str) -> None:
    server = serve(host)
    engine = Engine(os.getpid(), server.pid)
    owner = Ownership(server.port, engine)
    assert [owner.objection(host) for _ in range(5)] == [None] * 5
    assert engine.listings == 1


def test_an_answer_of_another_process_does_not_count(serve: Serve) -> None:
    server = serve()
    message = rf"^port {server.port} is served by .* \(process {server.pid}\), which does not belong to this engine$"
    with pytest.raises(PortTaken, match=message):
        Ownership(server.port, Engine(1)).objection(LOOPBACK)


def test_of_two_engines_that_share_a_port_the_first_keeps_it(serve: Serve) -> None:
    """Of two that start at the same moment, one must survive."""
    first = serve()
    second = serve(port=first.port)
    with pytest.raises(PortTaken, match=f"process {first.pid}"):
        Ownership(first.port, Engine(second.pid)).objection(LOOPBACK)
    owner = Ownership(first.port, Engine(first.pid))
    assert f"process {second.pid}" in (owner.objection(LOOPBACK) or "")
    second.close()
    assert owner.objection(LOOPBACK) is None


def test_the_address_decides_who_answers(serve: Serve) -> None:
    """A socket bound to exactly the address comes before a wildcard one, and IPv4 is not IPv6."""
    everywhere = serve("0.0.0.0")
    exact = serve(LOOPBACK, everywhere.port)
    owner = Ownership(exact.port, Engine(exact.pid))
    assert owner.objection(LOOPBACK) is None
    with pytest.raises(PortTaken, match=f"process {everywhere.pid}"):
        owner.objection("127.0.0.2")
    six = serve("::1", everywhere.port)
    assert Ownership(exact.port, Engine(six.pid)).objection("::1") is None


def test_an_engine_that_has_lost_its_port_is_detected(serve: Serve) -> None:
    mine = serve()
    owner = Ownership(mine.port, Engine(mine.pid))
    assert owner.objection(LOOPBACK) is None
    mine.close()
    assert "is no longer the engine" in (owner.objection(LOOPBACK) or "")
    other = serve(port=mine.port)
    with pytest.raises(PortTaken, match=f"process {other.pid}"):
        owner.objection(LOOPBACK)


def test_an_answer_without_a_known_listener_counts_as_the_port_was_silent_before(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example, an engine in a container with a network of its own."""
    server = serve()
    monkeypatch.setattr(ports, "listeners", lambda port: [])
    assert Ownership(server.port, Engine()).objection(LOOPBACK) is None


def test_an_answer_without_a_known_holder_counts_as_the_port_was_silent_before(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user's process, or a process in a container on this host: it may be the engine's."""
    server = serve()
    monkeypatch.setattr(ports, "visible_processes", lambda: [os.getpid()])
    assert Ownership(server.port, Engine()).objection(LOOPBACK) is None


def test_a_process_missing_from_the_first_listing_still_counts_as_the_engines(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve()
    engine = Engine(server.pid)
    monkeypatch.setattr(engine, "processes", list)
    assert Ownership(server.port, engine).objection(LOOPBACK) is None


def test_a_foreign_process_is_searched_for_once(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve()
    listings: list[int] = []
    monkeypatch.setattr(ports, "visible_processes", lambda: listings.append(1) or [server.pid])
    owner = Ownership(server.port, Engine())
    for _ in range(3):
        with pytest.raises(PortTaken):
            owner.objection(LOOPBACK)
    assert len(listings) == 1


def test_the_ports_of_an_engine_are_those_reachable_at_its_nodes_address(serve: Serve) -> None:
    inside, outside, other = serve(LOOPBACK), serve("0.0.0.0"), serve("0.0.0.0")
    assert ports.ports_of([inside.pid, outside.pid], "127.0.0.2") == {outside.port}
    assert ports.ports_of([inside.pid, outside.pid], LOOPBACK) == {inside.port, outside.port}
    assert other.port not in ports.ports_of([], LOOPBACK)
