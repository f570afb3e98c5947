"""Packing models with variants: which one a replica takes, and what all variants of a model share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from short_forms import short_inventory, short_model

from fleetctl.documents.fleet import NodePolicy
from fleetctl.planner.live import sort_out
from fleetctl.planner.placement.claims import replica_shape
from fleetctl.planner.placement.demand import Demand, Expected
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


def ledger_of(nodes: list[Short], policies: Sequence[NodePolicy] = (), demands: Sequence[Demand] = ()) -> Ledger:
    inventory = short_inventory({"nodes": nodes})
    shapes = {demand.shape.key: demand.shape for demand in demands}
    return open_ledger(inventory, policies, sort_out(inventory, "lab", ()), shapes)


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


def prices(**of_card: float) -> list[NodePolicy]:
    return [NodePolicy.model_validate({"selector": {"card": card}, "price": price}) for card, price in of_card.items()]


EQUAL = [{"gpus": 1, **cards("a")}, {"gpus": 1, **cards("b")}, {"gpus": 1, **cards("c")}]
THREE = [node("a", 2, "a"), node("b", 2, "b"), node("c", 2, "c")]


def test_among_equal_units_the_cheaper_variant_wins_and_among_equal_prices_the_preferred_one() -> None:
    model = {"key": "m", "replicas": 3, "variants": EQUAL}
    assert packed([model], THREE, prices(a=8, b=4, c=6))[0] == {"m/1": 2, "m/2": 1}
    assert packed([model], THREE, prices(a=8, b=4, c=4))[0] == {"m/1": 2, "m/2": 1}
    assert packed([model], THREE, prices(a=4, b=4, c=4))[0] == {"m/0": 2, "m/1": 1}


def test_fewer_real_units_come_before_a_lower_price() -> None:
    model = {"key": "m", "replicas": 1, "variants": [{"gpus": 2, **cards("a")}, {"gpus": 1, **cards("b")}]}
    assert packed([model], THREE, prices(a=1, b=90))[0] == {"m/1": 1}


def test_prices_decide_nothing_if_a_node_that_could_hold_a_variant_has_none() -> None:
    model = {"key": "m", "replicas": 2, "variants": EQUAL[:2]}
    full = node("full", 2, "b", used={"GPU": 2})
    assert packed([model], THREE, prices(a=8, c=1))[0] == {"m/0": 2}, "b has no price"
    assert packed([model], THREE, prices(a=8, b=4))[0] == {"m/1": 2}, "c holds neither variant"
    named = NodePolicy.model_validate({"selector": {"ray.io/node-id": "b"}, "price": 4})
    assert packed([model], [*THREE, full], [*prices(a=8), named])[0] == {"m/0": 2}, "nor has a full one"


def test_nodes_that_are_too_small_for_a_variant_need_no_price() -> None:
    model = {"key": "m", "replicas": 1, "variants": [{"gpus": 2, "selector": {"zone": "x"}}, {"gpus": 2, **cards("b")}]}
    small = [node("head", 0, ""), node("l", 1, "l4"), node("a", 2, "a"), node("b", 2, "b")]
    nodes = [{**one, "labels": {**one["labels"], "zone": "x"}} for one in small]
    assert packed([model], nodes, prices(a=8, b=4))[0].total() == 1
    packing = packed([model], nodes, prices(a=8, b=4))[1]
    names = [one["name"] for one in sorted(nodes, key=lambda one: str(one["name"]))]
    assert [names[one.node] for one in packing.placed[0].assignments] == ["b"], "the cheapest node of the first variant"


def test_a_replica_costs_its_part_of_each_of_its_nodes() -> None:
    """Two of two cards of a node for 6 cost more than two of eight cards of a node for 20."""
    model = {"key": "m", "replicas": 1, "variants": [{"gpus": 2, **cards("a")}, {"gpus": 2, **cards("big")}]}
    nodes = [node("a", 2, "a"), node("big", 8, "big")]
    assert packed([model], nodes, prices(a=6, big=20))[0] == {"m/1": 1}
    assert packed([model], nodes, prices(a=4.9, big=20))[0] == {"m/0": 1}


def test_variants_without_cards_cost_their_part_of_the_cpus() -> None:
    model = {"key": "m", "replicas": 1, "variants": [{"cpus": 8, **cards("a")}, {"cpus": 4, **cards("b")}]}
    nodes = [node("a", 0, "a", cpus=64), node("b", 0, "b", cpus=64)]
    assert packed([model], nodes, prices(a=1, b=1))[0] == {"m/1": 1}
    assert packed([model], nodes, prices(a=1, b=3))[0] == {"m/0": 1}


def test_a_gang_costs_the_sum_of_its_members() -> None:
    gang = {"gang": {"gpus": 1, "workers": 1}}
    model = {"key": "m", "replicas": 1, "variants": [{**gang, **cards("a")}, {"gpus": 2, **cards("b")}]}
    nodes = [node("a1", 1, "a"), node("a2", 1, "a"), node("a3", 1, "a"), node("b", 2, "b")]
    dear = NodePolicy.model_validate({"selector": {"ray.io/node-id": "a1"}, "price": 50})
    assert packed([model], nodes, [*prices(a=2, b=5), dear])[0] == {"m/0": 1}
    assert packed([model], nodes, [*prices(a=2, b=3), dear])[0] == {"m/1": 1}


def test_of_several_models_the_price_of_all_together_is_the_lowest() -> None:
    """The model that would pay more elsewhere gets the cheap cards, whichever comes first in the file."""
    first = {"key": "first", "replicas": 2, "variants": [{"gpus": 1, **cards("cheap")}, {"gpus": 1, **cards("fair")}]}
    second = {"key": "second", "replicas": 2, "variants": [{"gpus": 1, **cards("cheap")}, {"gpus": 1, **cards("dear")}]}
    nodes = [node("cheap", 2, "cheap"), node("dear", 2, "dear"), node("fair", 2, "fair")]
    for models in ([first, second], [second, first]):
        assert packed(models, nodes, prices(cheap=1, fair=2, dear=9))[0] == {"first/1": 2, "second/0": 2}


def test_neither_room_for_the_rest_nor_a_written_spread_costs_more() -> None:
    model = {"key": "m", "replicas": 2, "variants": EQUAL[:2], "spread": "rack"}
    nodes = [node(name, 2, "a", vram="80Gi") for name in ("a1", "a2")] + [node("b", 2, "b", vram="24Gi")]
    nodes = [{**one, "labels": {**one["labels"], "rack": one["name"]}} for one in nodes]
    cheap = NodePolicy.model_validate({"selector": {"ray.io/node-id": "a2"}, "price": 1})
    demands = demands_of([model])
    ledger = ledger_of(nodes, [*prices(a=4, b=2), cheap], demands)
    rest = replica_shape(short_model({"key": "rest", "replicas": 3, "gpus": 2}))
    expected = [Expected(demands[0].shape, 2, 20), Expected(rest, 3, 9)]
    packing = pack(demands, Placer(ledger), expected=expected)
    assert [ledger.nodes[one.node].name for placed in packing.placed for one in placed.assignments] == ["a2", "a2"]
