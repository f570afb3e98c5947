"""The packer with one of its tiers switched off, to measure what that tier gains."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

from fleetctl.planner.placement import pack, rearrange, reduce
from fleetctl.planner.placement.demand import Demand, Placed
from fleetctl.planner.placement.exact import exact
from fleetctl.planner.placement.problem import Problem
from fleetctl.planner.placement.reduce import ReducedProblem


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _as_it_was(_demands: Sequence[Demand], placed: Sequence[Placed], *_: Any, **__: Any) -> list[Placed]:
    return list(placed)


def _as_large(problem: Problem, demands: Sequence[Demand]) -> ReducedProblem:
    return ReducedProblem(problem.ledger.copied(), tuple(demands), {demand.option: demand for demand in demands})


TIERS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "solver": (exact, "relax_by_node", _nothing),
    "room-pass": (pack._Search, "try_other", _nothing),
    "patterns": (pack._Search, "try_patterns", _nothing),
    "follow-bound": (pack._Search, "follow_bound", _nothing),
    "rearrange": (rearrange, "rearrange", _as_it_was),
    "reduce": (reduce, "reduce_problem", _as_large),
}
"""By name: the module and function of a tier, and its replacement."""


@contextmanager
def without(tier: str | None) -> Iterator[None]:
    """Switch a tier off inside the context."""
    with nullcontext() if tier is None else mock.patch.object(*TIERS[tier]):
        yield
