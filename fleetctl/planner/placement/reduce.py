"""The reduced problem, without the resources that cannot run out before the cards do, so that more things are equal.

One model claims 11 CPUs, another 12.5; if every node has enough CPUs for all that its cards could hold, the difference
does not change what fits. CPUs, memory and VRAM are dropped if no node could run short of them, and where a member may
go becomes part of its selector. The reduced and the true problem have the same packings.

CPU seconds per plan with it and without: 1,000 fragmented nodes with 300 models (`scale`, seed 1) 2.6 and 12.9, the
trace default in batch 10.6 and 18.5. All levels of the survey are the same without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fleetctl.planner.placement.claims import Claim, GroupShape, Kind, MemberShape, ReplicaShape, Selector
from fleetctl.planner.placement.demand import Demand, Option, Placed
from fleetctl.planner.placement.ledger.cards import Offer, OfferedCard
from fleetctl.planner.placement.ledger.ledger import Ledger
from fleetctl.planner.placement.ledger.replica import Assigned
from fleetctl.planner.placement.policies import NO_CAP
from fleetctl.planner.placement.problem import Problem
from fleetctl.planner.placement.tally import Flags, Ints, Tally


@dataclass(frozen=True, slots=True)
class Kept:
    """Which resources the reduced problem keeps."""

    cpus: bool
    memory: bool
    whole_vram: bool
    """Memory of cards taken whole; dropped if each node has it on all of its free cards or on none."""
    share_vram: bool
    """Memory of shared cards; dropped if shares run out first."""


@dataclass(frozen=True, slots=True)
class ReducedProblem:
    """The same demands and ledger without the resources that cannot bind."""

    ledger: Ledger
    demands: tuple[Demand, ...]
    """In the order of the true demands."""
    true: Mapping[Option, Demand]
    """The true demands by model and variant."""

    def restored(self, placed: Sequence[Placed]) -> list[Placed]:
        """Return the placements with the true members."""
        result = []
        for demand, assignments in placed:
            true = self.true[demand.option]
            result.append(Placed(true, tuple([Assigned(seat, node, gpus, slot) for seat, (_, node, gpus, slot)
                                              in zip(true.shape.seats, assignments, strict=True)])))
        return result


def reduce_problem(problem: Problem, demands: Sequence[Demand]) -> ReducedProblem:
    """Drop from `problem` and its `demands` the resources that cannot bind. The ledger of `problem` stays as it is."""
    tally = Tally(problem)
    possible = np.array([tally.max_members(kind) > 0 for kind in range(len(problem.kinds))], dtype=bool)
    kept = _what_binds(problem, tally, possible.reshape(len(problem.kinds), len(problem.nodes)))
    true = problem.ledger
    offers = {number: _reduced_offer(true.numbered(number), kept) for number in dict.fromkeys(true.numbers)}
    ledger = true.copied(offers={index: offers[number] for index, number in enumerate(true.numbers)})
    kinds = _reduced_kinds(problem, possible, kept, ledger)
    if ledger.prices is not None:
        ledger.prices = ledger.prices.with_kinds(kinds)
    reduced = tuple(replace(demand, shape=_reduced_shape(demand.shape, kinds)) for demand in demands)
    return ReducedProblem(ledger, reduced, {demand.option: demand for demand in demands})


def _what_binds(problem: Problem, tally: Tally, possible: Flags) -> Kept:
    """Return what may run out; `possible` = by kind and class of nodes, whether a member may fit, judging by sums."""
    claims = [claim for claim, _ in problem.kinds]
    cards, nodes = tally.cards, len(problem.nodes)
    whole = shares = any(claim.vram and not claim.gpus for claim in claims)
    # beside foreign use, a share with a claim on memory is another matter than one without
    in_use = any(card.foreign for node in problem.nodes for card in node.offer.cards)
    for kind, claim in enumerate(claims):
        here = np.flatnonzero(possible[kind])
        if claim.vram and claim.whole_cards:
            whole = whole or bool((tally.free_cards(claim.vram) < tally.free_cards(0))[here].any())
        elif claim.vram:
            shares = shares or in_use
            short = claim.vram * cards.share > claim.gpus * np.maximum(cards.vram, 0)
            shares = shares or bool(np.bincount(cards.node[short], minlength=nodes)[here].any())
    prices = problem.ledger.prices
    by_cpus = prices is not None and prices.by_cpus
    return Kept(
        by_cpus or _may_run_out([claim.cpus for claim in claims], tally.cpus, problem, tally, possible),
        _may_run_out([claim.memory for claim in claims], tally.memory, problem, tally, possible), whole, shares,
    )


def _may_run_out(amounts: Sequence[int], free: Ints, problem: Problem, tally: Tally, possible: Flags) -> bool:
    """Return whether some node could run out of a resource before its cards are used up.

    Members with GPUs take at most the largest amount per GPU unit, for the whole share of the node; members without
    cards take at most what all of them together would take on one node.
    """
    if not any(amounts):
        return False
    per_gpu = np.zeros(len(free))
    cardless = np.zeros(len(free))
    for kind, (claim, _) in enumerate(problem.kinds):
        if not amounts[kind]:
            continue
        if claim.gpus:
            per_gpu = np.maximum(per_gpu, np.where(possible[kind], amounts[kind] / claim.gpus, 0))
        elif claim.wants_card:
            return True
        else:
            cardless += np.where(possible[kind], amounts[kind] * _members_on_a_node(problem, kind), 0)
    need = np.ceil(per_gpu * np.maximum(tally.gpus, 0) * (1 + 1e-9)) + cardless
    return bool((need > free).any())


def _members_on_a_node(problem: Problem, kind: int) -> Ints:
    """Return by node class the most members of a kind on one node: all that are missing, within slot caps."""
    maximum = np.zeros(len(problem.nodes), dtype=np.int64)
    for demand in problem.demands:
        count = demand.members().get(kind, 0)
        if count:
            caps = np.array([node.caps[demand.shape.wants_cards] for node in problem.nodes], dtype=np.int64)
            replicas = np.minimum(demand.missing, np.where(caps >= NO_CAP, demand.missing, caps * len(demand.demands)))
            maximum += count * replicas
    return maximum


def _reduced_offer(offer: Offer, kept: Kept) -> Offer:
    cards = offer.cards
    if not kept.whole_vram and not kept.share_vram:
        cards = tuple([OfferedCard(card.index, card.free_share, None, card.memory, card.foreign, card.tries)
                       for card in cards])
    return Offer(cards, offer.free_gpus, offer.free_cpus if kept.cpus else 0, offer.free_memory if kept.memory else 0,
                 offer.empty, offer.unreported)


def _reduced_kinds(problem: Problem, possible: Flags, kept: Kept, ledger: Ledger) -> dict[Kind, Kind]:
    """Return the reduced kind of each kind; its selector stands for the set of nodes on which it may fit."""
    selectors: dict[bytes, Selector] = {}
    kinds: dict[Kind, Kind] = {}
    for number, (claim, selector) in enumerate(problem.kinds):
        row = possible[number]
        key = np.packbits(row).tobytes()
        if key not in selectors:
            selectors[key] = Selector((("", str(len(selectors))),))
            indices = [index for node in np.flatnonzero(row) for index in problem.nodes[node].nodes]
            ledger.select(selectors[key], sorted(indices))
        keep_vram = kept.whole_vram if claim.whole_cards else kept.share_vram
        kinds[claim, selector] = Claim(claim.gpus, claim.vram if keep_vram else 0, claim.cpus if kept.cpus else 0,
                                       claim.memory if kept.memory else 0), selectors[key]
    return kinds


def _reduced_shape(shape: ReplicaShape, kinds: Mapping[Kind, Kind]) -> ReplicaShape:
    groups = tuple(
        GroupShape(group.name, group.copies, tuple(
            MemberShape(member.role, member.count, *kinds[member.claim, member.selector]) for member in group.members),
            group.most_ranks)
        for group in shape.groups
    )
    return replace(shape, groups=groups)
