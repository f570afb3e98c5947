"""New nodes of types with prices: the cheapest ones on which as much fits as on all that may be added."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from random_cases import cases
from short_forms import plan_for, short_fleet, short_inventory

from fleetctl.documents.plan import Plan


def node_type(name: str, price: float | None, *, gpus: int = 1, most: int = 20, vram: str = "80Gi") -> dict[str, Any]:
    node = {"gpus": gpus, "vram": vram, "cpus": 64, "memory": "512Gi", "labels": {"pool": name}}
    return {"name": name, "max": most, "node": node, **({} if price is None else {"price": price})}


def planned(types: list[dict[str, Any]], *models: dict[str, Any], nodes: tuple[dict[str, Any], ...] = (),
            **more: Any) -> Plan:
    return plan_for(short_fleet({"grow": types, "models": list(models), **more}),
                    short_inventory({"nodes": [{"name": "old", "cpus": 0}, *nodes]}))


def needed(types: list[dict[str, Any]], *models: dict[str, Any], **more: Any) -> dict[str, int]:
    return {row.name: row.nodes for row in planned(types, *models, **more).growth if row.nodes}


def test_the_cheapest_type_is_chosen_whatever_its_place_in_the_file() -> None:
    model = {"key": "m", "replicas": 3, "gpus": 1}
    for types in ([node_type("h", 24, gpus=8), node_type("l", 1)], [node_type("l", 1), node_type("h", 24, gpus=8)]):
        assert needed(types, model) == {"l": 3}
        assert needed([{**one, "price": 2} for one in types], model) == {"h": 1}, "one node for 2 holds all"


def test_a_mix_of_types_is_found() -> None:
    assert needed([node_type("h", 20, gpus=8), node_type("l", 3)], {"key": "m", "replicas": 10, "gpus": 1}) == {
        "h": 1, "l": 2}
    models = [{"key": "big", "replicas": 2, "gpus": 1, "vram": "60Gi"}, {"key": "small", "replicas": 4, "gpus": 1}]
    assert needed([node_type("h", 9), node_type("l", 1, vram="24Gi")], *models) == {"h": 2, "l": 4}
    assert needed([node_type("h", 0), node_type("l", 1, vram="24Gi")], *models) == {"h": 6}


def test_of_equally_cheap_nodes_those_of_earlier_types_are_chosen() -> None:
    model = {"key": "m", "replicas": 4, "gpus": 1}
    types = [node_type("a", 4, gpus=4), node_type("b", 1), node_type("c", 2, gpus=2)]
    assert needed(types, model) == {"a": 1}
    assert needed(types[::-1], model) == {"c": 2}
    assert needed([node_type("x", 0), node_type("y", 0)], model) == {"x": 4}, "no more than are needed"


def test_nodes_without_a_price_are_for_what_others_cannot_hold() -> None:
    models = [{"key": "big", "replicas": 1, "gpus": 2}, {"key": "small", "replicas": 2, "gpus": 1}]
    assert needed([node_type("free", None, gpus=2), node_type("l", 50)], *models) == {"free": 1, "l": 2}
    plain = [node_type("a", None, gpus=2), node_type("b", None)]
    assert needed(plain, *models) == {"a": 2}, "without any price: types later in the file are reduced first"


def test_a_policy_gives_a_type_without_a_price_of_its_own_one() -> None:
    types, model = [node_type("h", None, gpus=8), node_type("l", None)], {"key": "m", "replicas": 3, "gpus": 1}
    policies = [{"price": 24}, {"selector": {"pool": "l"}, "price": 1}]
    assert needed(types, model, nodes=()) == {"h": 1}
    plan = plan_for(short_fleet({"grow": types, "models": [model], "nodes": policies}),
                    short_inventory({"nodes": [{"name": "old", "cpus": 0}]}))
    assert {row.name: (row.nodes, row.price) for row in plan.growth} == {"h": (0, 24_000_000), "l": (3, 1_000_000)}


def test_nodes_that_have_joined_cost_nothing_more() -> None:
    types = [node_type("l", 1), node_type("h", 24, gpus=2)]
    model = {"key": "m", "replicas": 2, "gpus": 1, "vram": "20Gi"}
    joined = {"name": "new", "gpus": 2, "labels": {"pool": "h"}, "joined": "20s"}
    assert needed(types, model) == {"l": 2}
    assert needed(types, model, nodes=(joined,)) == {}


def test_a_gang_may_use_free_cards_of_existing_nodes() -> None:
    gang = {"key": "g", "replicas": 1, "gang": {"gpus": 1, "workers": 1}}
    existing = {"name": "e", "gpus": 1, "vram": "80Gi"}
    types = [node_type("h", 30), node_type("l", 2)]
    assert needed(types, gang, nodes=(existing,)) == {"l": 1}
    assert needed(types, gang) == {"l": 2}


def test_a_model_with_variants_gets_the_nodes_that_cost_least_for_any_of_them() -> None:
    variants = [{"name": "one-h", "gpus": 1, "vram": "60Gi"}, {"name": "two-l", "gpus": 2, "vram": "20Gi"}]
    model = {"key": "m", "replicas": 2, "variants": variants}
    types = [node_type("h", 9), node_type("l", 1.5, gpus=2, vram="24Gi")]
    assert needed(types, model) == {"l": 2}
    assert needed([{**types[0], "price": 1}, types[1]], model) == {"h": 2}
    assert needed([node_type("h", 9), node_type("l", 1.5, gpus=2, vram="24Gi", most=1)], model) == {"h": 1, "l": 1}


AMOUNTS = st.fixed_dictionaries({"gpus": st.sampled_from([0, 1, 2, 4]), "vram": st.sampled_from(["24Gi", "80Gi"]),
                                 "cpus": st.sampled_from([8, 32]), "memory": st.sampled_from(["32Gi", "256Gi"])})
CLAIMS = st.one_of(
    st.fixed_dictionaries({"gpus": st.sampled_from([0.5, 1, 2, 4]), "cpus": st.sampled_from([0, 8]),
                           "vram": st.sampled_from(["0", "20Gi", "60Gi"])}),
    st.fixed_dictionaries({"cpus": st.sampled_from([4, 20]), "memory": st.sampled_from(["8Gi", "60Gi"])}),
    st.fixed_dictionaries({"gang": st.just({"gpus": 1, "workers": 1})}))
TYPES = st.lists(st.tuples(AMOUNTS, st.integers(1, 3), st.sampled_from([0, 0.5, 1, 2, 3.25, 8, None])),
                 min_size=2, max_size=3)
MODELS = st.lists(st.tuples(CLAIMS, st.integers(1, 4)), min_size=1, max_size=2)


@settings(max_examples=cases(30), deadline=None)
@given(TYPES, MODELS)
def test_no_counts_on_which_as_much_fits_cost_less(drawn: list[tuple[dict[str, Any], int, float | None]],
                                                   wanted: list[tuple[dict[str, Any], int]]) -> None:
    """All counts are tried: each as a file that allows no more, and has no prices to choose by."""
    types = [{"name": f"t{at}", "max": most, "node": {**amounts, "labels": {"pool": f"t{at}"}},
              **({} if price is None else {"price": price})} for at, (amounts, most, price) in enumerate(drawn)]
    models = [{"key": f"m{at}", "replicas": count, **claim} for at, (claim, count) in enumerate(wanted)]
    plain = [{key: value for key, value in one.items() if key != "price"} for one in types]

    def fitting(plan: Plan) -> dict[str, int]:
        return {row.model: row.on_new_nodes for row in plan.blocked}

    def costs(counts: tuple[int, ...]) -> tuple[float, float, list[int]]:
        unknown = sum(count for count, (*_, price) in zip(counts, drawn, strict=True) if price is None)
        known = sum(count * price for count, (*_, price) in zip(counts, drawn, strict=True) if price is not None)
        return unknown, known, list(reversed(counts))

    found, every = planned(types, *models), fitting(planned(plain, *models))
    assert fitting(found) == every
    if not found.growth or all(price is None for *_, price in drawn):
        return
    enough = [counts for counts in product(*(range(most + 1) for _, most, _ in drawn)) if every == fitting(planned(
        [{**one, "max": count} for one, count in zip(plain, counts, strict=True) if count], *models))]
    assert costs(tuple(row.nodes for row in found.growth)) == min(map(costs, enough))


def test_neither_do_any_with_variants_quotas_and_a_variant_that_cools() -> None:
    """All counts are tried, as above; a variant with three failures in a row gets no nodes."""
    draw, grew = random.Random("variants that grow"), 0
    for number in range(cases(20)):
        types = [node_type(name, draw.choice([0.5, 1, 2, 3.25, 8]), gpus=draw.choice([1, 2, 4]),
                           most=draw.randint(1, 3)) for name in "hls"[:draw.randint(1, 3)]]
        failures, models = list[dict[str, Any]](), list[dict[str, Any]]()
        for key in ("m", "n")[:draw.randint(1, 2)]:
            variants = list[dict[str, Any]]()
            for name in "abc"[:draw.randint(1, 3)]:
                one = {"name": name, "gpus": draw.choice([1, 1, 2, 4]), "hash": f"{key}-{name}"}
                one |= {"selector": {"pool": draw.choice("hl")}} if draw.random() < 0.7 else {}
                one |= {"max": draw.randint(1, 3)} if draw.random() < 0.4 else {}
                variants.append(one)
                if draw.random() < 0.25:
                    failures += [{"model": key, "hash": one["hash"], "node": f"x{at}", "ago": "1m"} for at in range(3)]
            models.append({"key": key, "replicas": draw.randint(1, 5), "variants": variants,
                           "labels": {"team": draw.choice("ab")}})
        quotas = [{"selector": {"team": "a"}, "replicas": draw.randint(0, 4)},
                  {"selector": {"team": "b"}, "gpus": draw.randint(0, 6)}][:draw.randint(0, 2)]
        policy = {"quotas": quotas, "cooldown": {"failures": 3, "first": "2m", "max": "1h"}}
        nodes = [{"name": "e", "gpus": draw.randint(0, 2)}, *({"name": f"x{at}", "gpus": 0} for at in range(3))]
        inventory = short_inventory({"nodes": nodes, "failures": failures})

        def plan(grow: list[dict[str, Any]]) -> Plan:
            return plan_for(short_fleet({"grow": grow, "models": models, "policy": policy}), inventory)  # noqa: B023

        def fitting(made: Plan) -> dict[str, int]:
            return {row.model: row.on_new_nodes for row in made.blocked if row.on_new_nodes}

        plain = [{key: value for key, value in one.items() if key != "price"} for one in types]
        found, every = plan(types), fitting(plan(plain))
        assert fitting(found) == every, number
        grew += bool(every)
        enough = [counts for counts in product(*(range(one["max"] + 1) for one in types)) if every == fitting(plan([
            {**one, "max": count} for one, count in zip(plain, counts, strict=True) if count]))]
        assert [row.nodes for row in found.growth] == list(min(enough, key=lambda counts: (
            sum(count * one["price"] for count, one in zip(counts, types, strict=True)), counts[::-1]))), number
    assert grew or cases(20) < 4
