"""Peers on a synthetic fleet: first-fit in file order, and Ray's own scheduler if it supports the fleet."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from tests.benchmarks.synthetic.check import State, allows, state_of
from tests.benchmarks.synthetic.fleet import MIB, Member, Model, SyntheticFleet
from tests.benchmarks.synthetic.planted import ACCELERATOR_LABEL

RAY_NODES, RAY_DEMANDS = 1000, 2000
"""Above these Ray's scheduler takes hours; at 1,000 nodes and 2,000 demands it takes minutes."""


def run_peers(fleet: SyntheticFleet) -> Iterator[dict[str, Any]]:
    """Yield one line per peer: the number of placed replicas, and the seconds."""
    began = time.perf_counter()
    placed = first_fit(fleet)
    yield {"peer": "first-fit", "placed": placed, "seconds": round(time.perf_counter() - began, 4)}
    why_not = _not_for_ray(fleet)
    if why_not:
        yield {"peer": "ray-autoscaler-v2", "skipped": why_not}
        return
    yield {"peer": "ray-autoscaler-v2", **ray(fleet)}


def first_fit(fleet: SyntheticFleet) -> int:
    """Place model by model in file order, each member on the first node that takes it; return the replicas placed."""
    states = [state_of(host) for host in fleet.hosts]
    for held in fleet.held:
        states[held.host].take(held.member, held.member.gpus, cards=held.cards)
    placed = 0
    for model in fleet.models:
        allowed = [state for state in states if allows(model.selector, state.host)]
        domains = _domains(model, allowed)
        for _ in range(model.replicas - model.live):
            if not any(_place(model, domain) for domain in domains):
                break
            placed += 1
    return placed


def _domains(model: Model, allowed: list[State]) -> list[list[State]]:
    """Return the groups of nodes that a replica may use together, as lists that `_place` may shrink."""
    if model.same_label is None:
        return [allowed]
    by_value: dict[str, list[State]] = {}
    for state in allowed:
        by_value.setdefault(state.host.labels[model.same_label], []).append(state)
    return list(by_value.values())


def _place(model: Model, domain: list[State]) -> bool:
    seats = [member for member in model.members for _ in range(member.count)]
    found: list[tuple[State, int]] = []
    place = 0
    while len(found) < len(seats) and place < len(domain):
        share = _fitting(seats[len(found)], domain[place])
        if share is None and len(model.members) == 1:
            del domain[place]  # room only shrinks: it would refuse again
            continue
        if share is not None:
            found.append((domain[place], share))
        place += 1
    if len(found) < len(seats):
        return False
    for (state, share), seat in zip(found, seats, strict=True):
        state.take(seat, share)
    return True


def _fitting(member: Member, state: State) -> int | None:
    """Return the GPU share a member would take on a node, or None if it does not fit."""
    if state.cpus < member.cpus or state.memory < member.memory:
        return None
    share = member.gpus or -(-10_000 * member.vram // state.host.cards[0])
    return share if state.pick(share, member.vram) else None


def _not_for_ray(fleet: SyntheticFleet) -> str | None:
    """Return why Ray's scheduler is skipped: it ignores card memory, and gangs and held cards are not translated."""
    if len(fleet.hosts) > RAY_NODES or fleet.planted > RAY_DEMANDS:
        return f"more than {RAY_NODES} nodes or {RAY_DEMANDS} demands"
    if fleet.held or not all(_plain(model) for model in fleet.models):
        return "this kind of fleet is not translated for it"
    return None


def _plain(model: Model) -> bool:
    return len(model.members) == 1 and model.members[0].gpus > 0 and not set(model.selector) - {ACCELERATOR_LABEL}


def ray(fleet: SyntheticFleet) -> dict[str, Any]:
    """Give all demands to Ray's scheduler at once; `placed` = the number it reports to fit, ignoring card memory."""
    from tests.benchmarks.peers.ray_scheduler import ray_scheduler
    from tests.benchmarks.placement.trace import Host, Task

    hosts = [Host(host.name, host.cpus * 1000, host.memory // MIB, len(host.cards), host.accelerator)
             for host in fleet.hosts]
    tasks = [_task(model, Task) for model in fleet.models for _ in range(model.replicas)]
    began = time.perf_counter()
    promised = ray_scheduler(hosts, tasks)
    return {"placed": len(promised.tasks), "heldByCards": len(promised.stays),
            "seconds": round(time.perf_counter() - began, 4)}


def _task(model: Model, task: Any) -> Any:
    member = model.members[0]
    milli = member.gpus // 10
    cards = max(1, milli // 1000)
    return task(cards, milli // cards, member.cpus // 10, member.memory // MIB, tuple(model.selector.values()))
