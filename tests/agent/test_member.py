"""A member reserves its ports before its engine starts, and its engine gets each under its own name."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from fleetctl.agent import member as member_module
from fleetctl.agent.cards import CardCheck
from fleetctl.agent.member import MemberSeat
from fleetctl.agent.messages import Engine, Member


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Mapping[str, str]]]:
    """The variables that engines are given; no Ray, no cards and no process are needed."""
    seen: list[Mapping[str, str]] = []
    reserved: list[socket.socket] = []

    def engine(_: Member, variables: Mapping[str, str], _log: None, held: list[socket.socket], _ip: str) -> Any:
        seen.append(variables)
        reserved.extend(held)
        return SimpleNamespace(start=lambda: None)

    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: "fd00::7")
    monkeypatch.setattr(member_module, "log_of", lambda _: None)
    monkeypatch.setattr(member_module.node, "granted_cards", list)
    monkeypatch.setattr(member_module.node, "ray_gpu_variable", lambda: None)
    monkeypatch.setattr(member_module, "wait_for_clean_cards", lambda *_, **__: CardCheck())
    monkeypatch.setattr(member_module, "EngineProcess", engine)
    yield seen
    for port in reserved:
        port.close()


def seat(rank: int, *names: str) -> MemberSeat:
    role = "Worker" if rank else "Leader"
    return MemberSeat(Member("main", 0, role, rank, "n1", "node-a", engine=Engine(("serve",), ports=names)))


def is_free(port: int) -> bool:
    with socket.socket() as other:
        try:
            other.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@pytest.mark.parametrize("rank", [0, 1])
def test_every_named_port_is_another_one_and_reserved(given: list[Mapping[str, str]], rank: int) -> None:
    member = seat(rank, "nixl", "my-bootstrap-2")
    member.start_engine({"FLEETCTL_PORT": str(member.port)})
    [variables] = given
    named = [int(variables[name]) for name in ("FLEETCTL_PORT_NIXL", "FLEETCTL_PORT_MY_BOOTSTRAP_2")]
    ports = [member.port, *named, *([member.leader_port] if rank == 0 else [])]
    assert len({*ports}) == len(ports)
    assert bool(member.leader_port) == (rank == 0)
    assert not any(map(is_free, ports))
    assert {name for name in variables if name.startswith("FLEETCTL_PORT")} == {
        "FLEETCTL_PORT", "FLEETCTL_PORT_NIXL", "FLEETCTL_PORT_MY_BOOTSTRAP_2"}


def test_a_member_without_named_ports_reserves_its_own_alone(given: list[Mapping[str, str]]) -> None:
    member = seat(1)
    member.start_engine({})
    assert len(member._reserved) == 1
    assert [name for name in given[0] if name.startswith("FLEETCTL_PORT")] == []
