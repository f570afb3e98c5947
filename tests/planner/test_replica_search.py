"""Placing one replica: dead ends of the greedy pass are searched, and a failed attempt leaves no trace."""

from __future__ import annotations

from typing import Any

from short_forms import short_inventory, short_model

from fleetctl.planner.live import sort_out
from fleetctl.planner.placement.claims import replica_shape
from fleetctl.planner.placement.ledger.ledger import open_ledger
from fleetctl.planner.placement.ledger.replica import Placer


def placer_over(nodes: list[dict[str, Any]]) -> Placer:
    inventory = short_inventory({"nodes": nodes})
    return Placer(open_ledger(inventory, (), sort_out(inventory, "lab", ())))


def gang(*selectors: dict[str, str]) -> dict[str, Any]:
    members = [{"role": "Worker" if rank else "Leader", "resources": {"gpus": 1}, "nodeSelector": selector}
               for rank, selector in enumerate(selectors)]
    return {"key": "m", "replicas": 1, "workers": [{"name": "main", "members": members}]}


def test_a_dead_end_of_the_greedy_pass_is_searched() -> None:
    """Ranks want {a, b}, {b, c}, {a, b}: taking a, then b, leaves nothing for the third."""
    placer = placer_over([{"name": name, "gpus": 1, "labels": {"n": name}} for name in "abc"])
    shape = replica_shape(short_model(gang({"n": "in(a, b)"}, {"n": "in(b, c)"}, {"n": "in(a, b)"})))
    assignments = placer.place(shape)
    assert assignments is not None
    assert [placer.ledger.nodes[assigned.node].name for assigned in assignments] == ["a", "c", "b"]


def test_the_gang_with_most_ranks_is_placed_first() -> None:
    """If prefills went first, each pair would fill a node, leaving one node for the two ranks of the last decode."""
    placer = placer_over([{"name": name, "gpus": 2, "labels": {"rack": "r"}} for name in "abcdef"])
    prefill = {"name": "prefill", "copies": 2, "members": [{"role": "Standalone", "resources": {"gpus": 1}}]}
    decode = {"name": "decode", "members": [{"role": role, "resources": {"gpus": 1}} for role in ("Leader", "Worker")]}
    shape = replica_shape(short_model({"key": "m", "replicas": 3, "workers": [prefill, decode],
                                       "sameLabel": {"label": "rack", "scope": "replica"}}))
    assert all(placer.place(shape) for _ in range(3))


def test_a_replica_that_does_not_fit_leaves_the_ledger_as_it_was() -> None:
    placer = placer_over([{"name": name, "gpus": 1, "labels": {"n": name}} for name in "abc"])
    before = [placer.ledger.offer(node) for node in range(3)]
    assert placer.place(replica_shape(short_model(gang({}, {"n": "a"}, {"n": "a"})))) is None
    assert placer.place(replica_shape(short_model(gang({"n": "a"}, {"n": "in(a, b)"}, {"n": "b"})))) is None
    assert [placer.ledger.offer(node) for node in range(3)] == before
    assert placer.ledger.mark() == 0


def test_a_hopeless_search_gives_up() -> None:
    nodes = [{"name": f"n{number}", "gpus": 1, "labels": {"n": f"n{number}"}} for number in range(30)]
    placer = placer_over(nodes)
    everywhere = {"n": "!n99"}
    pair = {"n": "in(n0, n1)"}
    assert placer.place(replica_shape(short_model(gang(*[everywhere] * 10, pair, pair, {"n": "!n98", "m": "!x"},
                                                       {"n": "in(n0, n1, n1)"})))) is None


def test_an_enormous_gang_is_refused_without_being_expanded() -> None:
    placer = placer_over([{"name": "a", "gpus": 1}])
    model = {"key": "m", "replicas": 1, "copies": 1024, "gang": {"gpus": 1, "workers": 1024}}
    shape = replica_shape(short_model(model))
    assert placer.place(shape) is None
    assert "seats" not in vars(shape)
