"""Packing models with variants: which one a replica takes, and what all variants of a model share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from short_forms import short_inventory, short_model

from fleetctl.documents.fleet import NodePolicy
from fleetctl.planner.live import sort_out
from fleetctl.planner.placement.claims import replica_shape
from fleetctl.planner.placement.demand import Demand
from fleetctl.planner.placement.ledger.ledger import Ledger, open_ledger
from fleetctl.planner.placement.ledger.replica import Placer
from fleetctl.planner.placement.pack import Packing, pack

Short = dict[str, Any]


def demands_of(models: list[Short]) -> list[Demand]:
    """Each model in short form; `variants` = what differs, with `least` and `most`; `live` = its live replicas."""
    demands = []
    for place, model in enumerate(models):
        common = {name: value for name, value in model.items() if name not in ("variants", "live")}
        variants = model.get("variants", [{}])
        shapes = [replica_shape(short_model(common | {name: value for name, value in variant.items()
                                                      if name not in ("least", "most")})) for variant in variants]
        demands += [
            Demand(shape, model["replicas"], model.get("live", 0), model.get("priority", 0), place, number,
                   variant.get("least", 0), variant.get("most"), shapes[0].gpu_units)
            for number, (variant, shape) in enumerate(zip(variants, shapes, strict=True))]
    return demands


def ledger_of(nodes: list[Short], policies: Sequence[NodePolicy] = ()) -> Ledger:
    inventory = short_inventory({"nodes": nodes})
    return open_ledger(inventory, policies, sort_out(inventory, "lab", ()))


def packed(
    models: list[Short], nodes: list[Short], policies: Sequence[NodePolicy] = ()
) -> tuple[Counter[str], Packing]:
    """Return how many replicas of each variant were placed, as `model/variant`, and the packing."""
    packing = pack(demands_of(models), Placer(ledger_of(nodes, policies)))
    return Counter(f"{one.demand.shape.key}/{one.demand.variant}" for one in packing.placed), packing


def cards(kind: str) -> Short:
    return {"selector": {"card": kind}}


def node(name: str, gpus: int, card: str, **more: Any) -> Short:
    return {"name": name, "gpus": gpus, "labels": {"card": card}, **more}


H100_OR_A100 = [{"gpus": 1, **cards("h100")}, {"gpus": 2, **cards("a100")}]


def test_the_cheapest_variant_is_used_up_before_the_next() -> None:
    model = {"key": "m", "replicas": 5, "variants": H100_OR_A100}
    placed, packing = packed([model], [node("h", 3, "h100"), node("a", 8, "a100")])
    assert placed == {"m/0": 3, "m/1": 2}
    assert packing.bound == 5


def test_among_equal_units_the_preferred_variant_wins() -> None:
    model = {"key": "m", "replicas": 2, "variants": [{"gpus": 1, **cards("b")}, {"gpus": 1, **cards("a")}]}
    assert packed([model], [node("a", 4, "a"), node("b", 4, "b")])[0] == {"m/0": 2}


def test_fewer_real_units_come_before_the_preferred_variant() -> None:
    model = {"key": "m", "replicas": 2, "variants": [{"gpus": 2, **cards("a")}, {"gpus": 1, **cards("b")}]}
    assert packed([model], [node("a", 4, "a"), node("b", 4, "b")])[0] == {"m/1": 2}


def test_all_variants_together_place_no_more_than_is_missing() -> None:
    model = {"key": "m", "replicas": 3, "variants": H100_OR_A100}
    placed, packing = packed([model], [node("h", 8, "h100"), node("a", 8, "a100")])
    assert (placed.total(), packing.bound) == (3, 3)


def test_a_variant_takes_at_most_its_own_limit_and_gets_its_own_minimum_first() -> None:
    model = {"key": "m", "replicas": 4, "variants": [{**H100_OR_A100[0], "most": 2}, {**H100_OR_A100[1], "least": 1}]}
    nodes = [node("h", 8, "h100"), node("a", 8, "a100")]
    assert packed([model], nodes)[0] == {"m/0": 2, "m/1": 2}
    assert packed([{**model, "replicas": 2}], nodes)[0] == {"m/0": 1, "m/1": 1}


def test_a_minimum_of_a_variant_comes_before_further_replicas_of_the_same_priority() -> None:
    wide = {"key": "wide", "replicas": 4, "gpus": 2, **cards("a100")}
    model = {"key": "m", "replicas": 1, "live": 1, "variants": [H100_OR_A100[0], {**H100_OR_A100[1], "least": 1}]}
    assert packed([wide, model], [node("a", 8, "a100")])[0] == {"wide/0": 3, "m/1": 1}


def test_a_replica_counts_the_units_of_the_first_variant_whichever_is_chosen() -> None:
    """On three cards, the model whose variant takes two of them is not worth more for that."""
    two = {"key": "two", "replicas": 2, "live": 1, "variants": [{"gpus": 1, **cards("h100")}, {"gpus": 2}]}
    one = {"key": "one", "replicas": 2, "live": 1, "gpus": 1}
    assert packed([two, one], [node("a", 3, "a100")])[0] == {"one/0": 2}


def test_another_variant_yields_to_a_model_that_has_only_this_one() -> None:
    choice = {"key": "choice", "replicas": 4, "variants": [{"gpus": 1, **cards("h100")}, {"gpus": 1, **cards("l4")}]}
    only = {"key": "only", "replicas": 4, "gpus": 1, **cards("h100")}
    placed, packing = packed([choice, only], [node("h", 4, "h100"), node("l", 4, "l4")])
    assert placed == {"only/0": 4, "choice/1": 4}
    assert packing.bound == 8


def test_slots_count_the_replicas_of_all_variants() -> None:
    model = {"key": "m", "replicas": 4, "variants": [{"gpus": 1}, {"gpus": 2}]}
    three = NodePolicy.model_validate({"maxReplicasPerModel": 3})
    placed, packing = packed([model], [{"name": "a", "gpus": 8}], [three])
    assert placed.total() == packing.bound == 3
