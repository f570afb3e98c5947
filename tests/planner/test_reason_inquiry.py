"""One inquiry serves a whole plan: equal models share an answer, and the ledger does not change."""

from __future__ import annotations

from short_forms import short_fleet, short_inventory

from fleetctl.planner.live import sort_out
from fleetctl.planner.placement.claims import replica_shape
from fleetctl.planner.placement.ledger.ledger import open_ledger
from fleetctl.planner.placement.ledger.replica import Placer
from fleetctl.planner.placement.occupants import look_around
from fleetctl.planner.placement.reasons.remedies import Inquiry


def _ask(models: int, **parts: object) -> tuple[Inquiry, list[str]]:
    nodes = [{"name": f"n{number:03}", "gpus": 8} for number in range(200)]
    replicas = [{"model": "tiny", "id": number, "node": node["name"], "gpus": 2, "cards": [0, 1]}
                for number, node in enumerate(nodes)]
    wanted = [{"key": f"m{number}", "replicas": 2, **parts} for number in range(models)]
    fleet = short_fleet({"models": [*wanted, {"key": "tiny", "replicas": 200, "gpus": 2}]})
    inventory = short_inventory({"nodes": nodes, "replicas": replicas})
    shapes = {model.key: replica_shape(model) for model in fleet.models}
    state = sort_out(inventory, fleet.name, shapes)
    ledger = open_ledger(inventory, fleet.policies, state)
    occupants = look_around(inventory.nodes, ledger.nodes, state.running, {model.key: model for model in fleet.models})
    inquiry = Inquiry(Placer(ledger), occupants, fleet.policies)
    before = list(ledger.numbers)
    blocked = [inquiry.blocked(shapes[model["key"]], 2, 0) for model in wanted]
    assert ledger.numbers == before
    return inquiry, [one.model_copy(update={"model": ""}).model_dump_json() for one in blocked]


def test_a_hundred_equal_models_cost_as_much_as_one() -> None:
    one, (answer,) = _ask(1, gpus=8)
    many, answers = _ask(100, gpus=8)
    assert set(answers) == {answer}
    assert many.search.steps == one.search.steps > 0


def test_a_gang_of_eighty_gpus_is_explained_in_few_steps() -> None:
    inquiry, (answer,) = _ask(1, gang={"gpus": 8, "workers": 9})
    assert "needs 10 nodes with 8 free GPUs, 0 found; 1200 GPUs are free but spread over 200 nodes" in answer
    assert inquiry.search.steps <= 40


def test_the_steps_of_one_plan_are_limited_and_the_plan_reports_it() -> None:
    inquiry, _ = _ask(1, gpus=8)
    notes, steps = [], list[int]()
    for memory in range(1, 900):  # a different claim each time, so that no earlier answer applies
        fleet = short_fleet({"models": [{"key": "late", "replicas": 1, "gpus": 8, "memory": memory}]})
        late = inquiry.blocked(replica_shape(fleet.models[0]), 1, 0)
        notes.append(late.no_remedy)
        steps.append(inquiry.search.steps)
        assert late.would_fit[0].nodes == 1
    assert notes[0] == ""
    assert notes[-1] == "which replicas would have to go was not computed: too much else is blocked in this plan"
    assert steps[-1] == steps[-2]
