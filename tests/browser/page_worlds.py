"""Real plans and their maps for the browser tests: a lab with every outcome, a large fleet, hostile names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any

from fleetctl.documents.answers import PlacementMap
from fleetctl.documents.difference import CountsThen, Difference, ModelEffect, PlanChange, Revision
from fleetctl.documents.plan import GitFacts, Plan, PolicyFinding
from fleetctl.documents.position import Position
from fleetctl.planner.questions.occupancy import placement_map
from fleetctl.planner.questions.scenario import Scenario
from tests.planner.short_forms import plan_for, short_fleet, short_inventory

EVIL = "[b]x[/b]\x1b[2J\u202e</title></script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&`:{3}"
ACCELERATOR = "ray.io/accelerator-type"


@dataclass(frozen=True)
class Drawn:
    """A plan and its map, and the inputs of both."""

    plan: Plan
    picture: PlacementMap
    world: Scenario


def drawn(short: dict[str, Any], **more: Any) -> Drawn:
    """Plan a fleet and an inventory in short form; `more` = fields of the plan that the planner does not fill."""
    world = Scenario(short_fleet(short["fleet"]), short_inventory(short["inventory"]))
    plan = plan_for(world.fleet, world.inventory)
    return Drawn(plan.model_copy(update=more), placement_map(world, plan), world)


def host(name: str, kind: str, gpus: int, vram: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "gpus": gpus, "vram": vram, "cpus": 64, "labels": {ACCELERATOR: kind}, **more}


def runs(model: str, replica_id: int, node: str, *cards: int, gpus: float, **more: Any) -> dict[str, Any]:
    return {"model": model, "id": replica_id, "node": node, "gpus": gpus, "cards": list(cards), **more}


LAB: dict[str, Any] = {
    "fleet": {
        "name": "lab",
        "nodes": [{"selector": {"fleet.io/state": "retiring"}, "cordon": True}],
        "models": [
            {"key": "Qwen/Qwen3-Coder-480B", "replicas": 2, "priority": 50, "gang": {"gpus": 8, "workers": 1}},
            {"key": "meta-llama/Llama-3.1-70B", "replicas": 3, "gpus": 4, "selector": {ACCELERATOR: "H100"}},
            {"key": "google/gemma-3-27b-it", "replicas": 1, "gpus": 2, "selector": {ACCELERATOR: "H100"},
             "hash": "as-it-is"},
            {"key": "openai-community/gpt2", "replicas": 6, "gpus": 0.25, "selector": {ACCELERATOR: "L4"}},
            {"key": "BAAI/bge-m3", "replicas": 3, "gpus": 0.5, "selector": {ACCELERATOR: "L4"}},
            {"key": "router", "replicas": 2, "cpus": 2, "selector": {ACCELERATOR: "L4"}},
            {"key": "Qwen/Qwen3-8B", "replicas": 2, "gpus": 1},
        ],
    },
    "inventory": {
        "nodes": [
            host("h100-1", "H100", 8, "80Gi"), host("h100-2", "H100", 8, "80Gi"),
            host("h100-3", "H100", 8, "80Gi"), host("h100-4", "H100", 8, "80Gi"),
            host("h100-5", "H100", 8, "80Gi", measured={5: "41Gi"}),
            host("l4-1", "L4", 4, "24Gi"), host("l4-2", "L4", 4, "24Gi"), host("l4-3", "L4", 4, "24Gi",
                                                                             state="DRAINING"),
            host("a100-old", "A100", 8, "40Gi", labels={ACCELERATOR: "A100", "fleet.io/state": "retiring"}),
            host("a100-gone", "A100", 8, "40Gi", state="DEAD"),
        ],
        "replicas": [
            {"model": "Qwen/Qwen3-Coder-480B", "id": 0, "nodes": ["h100-1", "h100-2"], "gpus": 8,
             "cards": list(range(8))},
            runs("meta-llama/Llama-3.1-70B", 0, "h100-5", 0, 1, 2, 3, gpus=4),
            runs("google/gemma-3-27b-it", 0, "h100-5", 6, 7, gpus=2, hash="as-it-is"),
            runs("google/gemma-3-27b-it", 1, "a100-old", 0, 1, gpus=2, hash="as-it-was"),
            runs("openai-community/gpt2", 0, "l4-1", 0, gpus=0.25),
            runs("openai-community/gpt2", 1, "l4-1", 0, gpus=0.25),
            runs("BAAI/bge-m3", 0, "l4-1", 0, gpus=0.5), runs("BAAI/bge-m3", 1, "l4-3", 2, gpus=0.5),
            runs("Qwen/Qwen3-8B", 0, "a100-old", 2, gpus=1),
            runs("Qwen/Qwen3-8B", 1, "a100-old", 3, gpus=1),
            runs("Qwen/Qwen3-8B", 2, "a100-gone", 0, gpus=1),
            {"model": "someone/else", "foreign": "9f3c:ModelActor:someone/else", "fleet": None, "node": "l4-2",
             "gpus": 1, "cards": [3]},
            {"model": "someone/else", "foreign": "77ab:ModelActor:someone/else", "fleet": None, "node": "a100-old",
             "gpus": 0.5, "cards": [6]},
        ],
    },
}

CHANGE = PlanChange(
    base=Revision(name="main", commit="8c1d2e3f4a5b6c7d8e9f0a1b2c3d4e5f60718293"), create=3, blocked=1, also_without=4,
    differences=[
        Difference(model="meta-llama/Llama-3.1-70B", path="replicas", kind="changed", effect="additive", old=1, new=3,
                   message="2 more replicas may be created"),
        Difference(model="google/gemma-3-27b-it", path="replicas", kind="changed", effect="held", old=2, new=1,
                   message="the target is lower than what runs: nothing is removed"),
        Difference(model="google/gemma-3-27b-it", path="workers.main.members[0].engine.args", kind="changed",
                   effect="drift", old=["--max-model-len", "8192"], new=["--max-model-len", "32768"],
                   message="running replicas keep the old spec"),
    ],
    models=[
        ModelEffect(key="meta-llama/Llama-3.1-70B", kind="changed", before=CountsThen(wanted=1, create=0, blocked=0),
                    after=CountsThen(wanted=3, create=1, blocked=1), message="1 more to create, 1 more blocked"),
        ModelEffect(key="BAAI/bge-m3", kind="sideEffect", before=CountsThen(wanted=3, create=0, blocked=1),
                    after=CountsThen(wanted=3, create=1, blocked=0), message="finds a place now"),
    ],
)
POLICY = PolicyFinding(
    code="MAX_NEW_REPLICAS", key="spec.policy.maxNewReplicas", limit="5", found="9", liftable=True, lifted=True,
    message="the plan would create 9 replicas, spec.policy.maxNewReplicas allows 5; --force lifts it for one run",
    source=Position(file="fleets/lab.yaml", line=6, column=21),
)


def lab() -> Drawn:
    """A small fleet with every outcome: create, blocked, held, drift, lost, unmanaged, policy and change."""
    git = GitFacts(commit="1a2b3c4d5e6f708192a3b4c5d6e7f80912345678", branch="more-llama", dirty=True)
    made = drawn(LAB, change=CHANGE, policy=[POLICY], expires_at="2026-01-02T00:00:00Z", plan_id="5e" * 32)
    fleet = made.plan.fleet.model_copy(update={"git": git})
    return replace(made, plan=made.plan.model_copy(update={"fleet": fleet}))


def large(nodes: int = 1000, models: int = 40, seed: int = 7) -> Drawn:
    """Nodes of eight cards, mostly full; one in ten is empty and gets new replicas."""
    rng = Random(seed)
    keys = [f"org-{number % 7}/model-{number:02}" for number in range(models)]
    running, wanted = [], dict.fromkeys(keys, 0)
    for number in range(nodes):
        free = 8 if number % 10 == 0 else rng.choice((0, 0, 0, 1, 2))
        card = 0
        while card < 8 - free:
            key = rng.choice(keys)
            size = min(rng.choice((1, 1, 2, 4)), 8 - free - card)
            running.append(runs(key, wanted[key], f"node-{number:04}", *range(card, card + size), gpus=size))
            wanted[key] += 1
            card += size
    targets = [{"key": key, "replicas": wanted[key] + (nodes // 10 if place < 4 else 0), "gpus": 2, "hash": key}
               for place, key in enumerate(keys)]
    return drawn({
        "fleet": {"name": "lab", "models": targets},
        "inventory": {"nodes": [host(f"node-{number:04}", "H100", 8, "80Gi") for number in range(nodes)],
                      "replicas": [{**one, "hash": one["model"]} for one in running]},
    })


def hostile() -> Drawn:
    """Names and messages that try to become markup or control sequences."""
    return drawn({
        "fleet": {"name": EVIL, "models": [
            {"key": EVIL, "replicas": 3, "gpus": 1}, {"key": "org/plain", "replicas": 1, "gpus": 8}]},
        "inventory": {"nodes": [host(EVIL, EVIL, 2, "80Gi")],
                      "replicas": [{"model": EVIL, "foreign": EVIL, "fleet": None, "node": EVIL, "gpus": 0.5}]},
    })
