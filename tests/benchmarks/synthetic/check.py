"""An independent checker for large plans: replays every action on the synthetic fleet, card by card, by Ray's rule.

Shares no code with the planner and reads the plan as plain JSON. A share goes to the card with the least share left
that still holds it, lowest index first, ignoring memory; whole cards to the lowest free ones with the claimed memory.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from tests.benchmarks.synthetic.fleet import CARD, FLEET, Host, Member, Model, SyntheticFleet


@dataclass(slots=True)
class State:
    """The free resources of one host: share and memory by card, CPUs, memory, and used slots by model."""

    host: Host
    share: list[int]
    vram: list[int]
    cpus: int
    memory: int
    slots: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))

    def pick(self, gpus: int, vram: int) -> list[int] | None:
        """Return the cards Ray hands out, or None if they do not fit."""
        if gpus >= CARD:
            free = [card for card, left in enumerate(self.share) if left == CARD and self.vram[card] >= vram]
            return free[: gpus // CARD] if len(free) >= gpus // CARD else None
        holding = [card for card, left in enumerate(self.share) if left >= gpus]
        card = min(holding, key=lambda card: (self.share[card], card), default=None)
        return [card] if card is not None and self.vram[card] >= vram else None

    def take(self, member: Member, gpus: int, *, cards: list[int] | tuple[int, ...] | None = None) -> str | None:
        """Take a member with `gpus`; returns a problem or None."""
        cards = cards if cards is not None else self.pick(gpus, member.vram) if gpus else []
        if cards is None:
            return f"{gpus} GPU share with {member.vram} bytes each does not fit its cards"
        for card in cards:
            self.share[card] -= min(gpus, CARD)
            self.vram[card] -= member.vram
        self.cpus -= member.cpus
        self.memory -= member.memory
        return "CPUs or memory are over-committed" if self.cpus < 0 or self.memory < 0 else None


def check(fleet: SyntheticFleet, plan: dict[str, Any]) -> list[str]:
    """Return the problems of a plan of this fleet."""
    states = {host.id: state_of(host) for host in fleet.hosts}
    for held in fleet.held:
        state = states[fleet.hosts[held.host].id]
        state.take(held.member, held.member.gpus, cards=held.cards)
        if held.fleet == FLEET:
            state.slots[held.model].add(held.slot)
    models = {model.key: model for model in fleet.models}
    problems = [*_document(fleet, plan), *_ids(plan, models)]
    for action in plan["actions"]:
        problems += [f"{action['id']}: {what}" for what in _action(action, models[action["model"]], states)]
    return problems


def state_of(host: Host) -> State:
    """Return an empty host."""
    return State(host, [CARD] * len(host.cards), list(host.cards), host.cpus * CARD, host.memory)


def _document(fleet: SyntheticFleet, plan: dict[str, Any]) -> Iterator[str]:
    text = json.dumps({key: value for key, value in plan.items() if key != "planId"}, sort_keys=True,
                      separators=(",", ":"), ensure_ascii=False)
    if hashlib.sha256(text.encode()).hexdigest() != plan["planId"]:
        yield "planId is not the hash of the plan"
    certificate, blocked = plan["certificate"], sum(one["replicas"] for one in plan["blocked"])
    if not certificate["placed"] == len(plan["actions"]) <= certificate["upperBound"] <= certificate["wanted"]:
        yield "the certificate contradicts itself"
    if certificate["upperBound"] < fleet.planted:
        yield f"the bound {certificate['upperBound']} is below the {fleet.planted} that can be placed"
    if len(plan["actions"]) + blocked != fleet.planted:
        yield f"{len(plan['actions'])} created and {blocked} blocked are not the {fleet.planted} missing"
    if any(one["op"] != "create" for one in plan["actions"]):
        yield "an action does not create"


def _ids(plan: dict[str, Any], models: dict[str, Model]) -> Iterator[str]:
    found: dict[str, list[int]] = defaultdict(list)
    for action in plan["actions"]:
        found[action["model"]].append(action["replicaId"])
    for key, ids in found.items():
        first = models[key].live
        if ids != list(range(first, first + len(ids))):
            yield f"{key}: ids do not continue from {first}"
        if len(ids) > models[key].replicas - first:
            yield f"{key}: more created than wanted"


def _action(action: dict[str, Any], model: Model, states: dict[str, State]) -> Iterator[str]:
    seats = [member for member in model.members for _ in range(member.count)]
    if len(seats) != len(action["members"]):
        yield "not all of its members are placed"
        return
    nodes = [written["nodeId"] for written in action["members"]]
    if len(set(nodes)) < len(nodes):
        yield "two ranks of a gang on one node"
    if model.same_label and len({states[node].host.labels.get(model.same_label) for node in nodes}) > 1:
        yield f"its gang is not inside one {model.same_label}"
    for seat, written in zip(seats, action["members"], strict=True):
        state = states[written["nodeId"]]
        if not allows(model.selector, state.host):
            yield f"{state.host.name} is not selected"
        lowest = next(slot for slot in range(len(states)) if slot not in state.slots[model.key])
        if written["slot"] != lowest:
            yield f"slot {written['slot']} on {state.host.name} is not the lowest free"
        state.slots[model.key].add(written["slot"])
        wrong = _share(seat, written["gpus"], state) or state.take(seat, written["gpus"])
        if wrong:
            yield f"{state.host.name}: {wrong}"


def _share(seat: Member, gpus: int, state: State) -> str | None:
    """Check the GPU share of a member; one that claims only memory takes that part of its card."""
    if seat.gpus or not seat.vram:
        return None if gpus == seat.gpus else f"{gpus} GPU share instead of {seat.gpus}"
    cards = state.pick(gpus, seat.vram)
    if cards and gpus == ceil(CARD * seat.vram / state.host.cards[cards[0]]):
        return None
    return f"{gpus} is not the share of {seat.vram} bytes"


def allows(selector: dict[str, str], host: Host) -> bool:
    """Evaluate a selector by Ray's rules: v, !v, in(a, b), !in(a, b)."""
    labels = {"ray.io/accelerator-type": host.accelerator, "ray.io/node-id": host.id, **host.labels}
    for key, text in selector.items():
        negated, rest = text.startswith("!"), text.removeprefix("!")
        values = re.split(r"\s*,\s*", rest[3:-1].strip()) if rest.startswith("in(") else [rest]
        if (labels.get(key) in values) == negated:
            return False
    return True
