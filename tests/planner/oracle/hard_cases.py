"""Families of random fleets, each hard to place in one way, in the short forms of short_forms.

A family draws shapes; families.py sets the numbers of replicas.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

Short = dict[str, Any]


def _nodes(random: Random, count: int, gpus: tuple[int, ...] = (8,), **more: Any) -> list[Short]:
    return [{"name": f"n{number:02}", "gpus": random.choice(gpus), "cpus": 512, "memory": "4Ti", **more}
            for number in range(count)]


def _models(random: Random, count: tuple[int, int], draw: Callable[[], Short]) -> list[Short]:
    levels = random.choice([(0,), (0,), (0, 5), (0, 5, 9)])
    return [{"key": f"m{number}", "priority": random.choice(levels), **draw()}
            for number in range(random.randint(*count))]


def _chain(random: Random, count: int) -> tuple[Short, Short]:
    sizes = random.choice([(1, 2, 4, 8), (1, 2, 4), (2, 8), (1, 4, 8), (4, 8)])
    nodes = _nodes(random, count, random.choice([(8,), (8, 4), (8, 4, 2)]))
    for node in nodes:
        if random.random() < 0.3:
            node["labels"] = {"pool": random.choice("xy")}
    models = _models(random, (2, 7), lambda: {
        "gpus": random.choice(sizes), "selector": random.choice([{}, {}, {}, {"pool": "x"}, {"pool": "!y"}])})
    return {"models": models}, {"nodes": nodes}


def _odd(random: Random, count: int) -> tuple[Short, Short]:
    sizes = random.choice([(3, 6), (3, 5), (1, 3, 6), (2, 3), (3, 4), (5, 2, 3), (6, 4, 2), (7, 3, 2)])
    models = _models(random, (2, 6), lambda: {"gpus": random.choice(sizes)})
    return {"models": models}, {"nodes": _nodes(random, count, random.choice([(8,), (8, 6), (10, 8, 4)]))}


SHARES = ((0.6, 0.4), (0.6, 0.5, 0.4, 0.2), (0.3, 0.7), (0.32, 0.5), (0.25, 0.5, 0.75), (0.45, 0.35, 0.2), (0.4, ),
          (0.8, 0.3, 0.2), (0.55, 0.3, 0.15))


def _shares(random: Random, count: int) -> tuple[Short, Short]:
    shares = random.choice(SHARES)
    sizes = (*shares, *random.choice([(), (1,), (1, 2), (2, 4)]))
    models = _models(random, (2, 6), lambda: {"gpus": random.choice(sizes)})
    return {"models": models}, {"nodes": _nodes(random, count, random.choice([(2,), (4,), (4, 2, 1), (8, 4)]))}


def _cpu_bound(random: Random, count: int) -> tuple[Short, Short]:
    nodes = _nodes(random, count, (8, 4))
    for node in nodes:
        node["cpus"] = random.choice([12, 16, 24, 33])
        node["memory"] = random.choice(["64Gi", "100Gi", "1Ti"])
    models = _models(random, (2, 6), lambda: {
        "gpus": random.choice([1, 1, 2, 4, 0.5]), "cpus": random.choice([1, 2, 4, 5, 7, 10]),
        "memory": random.choice([0, 0, "10Gi", "24Gi"])})
    return {"models": models}, {"nodes": nodes}


def _selectors(random: Random, count: int) -> tuple[Short, Short]:
    nodes = _nodes(random, count, (8, 4))
    for node in nodes:
        node["labels"] = {"tier": random.choice("abc"), "zone": random.choice("xyz"), "net": random.choice("pq")}
    nested = [{}, {"tier": "a"}, {"tier": "in(a, b)"}, {"tier": "!c", "zone": "x"}, {"zone": "in(x, y)"}, {"net": "p"},
              {"net": "p", "zone": "!z"}]
    sizes = random.choice([(1, 2, 4, 8), (1, 2, 4), (1, 3, 2)])
    models = _models(random, (3, 8), lambda: {"gpus": random.choice(sizes), "selector": random.choice(nested)})
    return {"models": models}, {"nodes": nodes}


def _gang(random: Random, gpus: tuple[float, ...] = (8, 8, 4, 2)) -> Short:
    gang: Short = {"gpus": random.choice(gpus), "workers": random.choice([1, 1, 2, 3])}
    model: Short = {"gang": gang, "ranksPerNode": random.choice([1, 1, 1, 2])}
    if random.random() < 0.25:
        model["copies"] = 2
    return model


def _gangs(random: Random, count: int) -> tuple[Short, Short]:
    nodes = _nodes(random, count, random.choice([(8,), (8, 4)]))
    models = _models(random, (2, 6), lambda: _gang(random) if random.random() < 0.6 else {
        "gpus": random.choice([1, 2, 4, 8])})
    return {"models": models}, {"nodes": nodes}


def _domains(random: Random, count: int) -> tuple[Short, Short]:
    nodes = _nodes(random, count + 1, random.choice([(8,), (8, 4)]))
    fabrics = "uvw"[:max(2, min(3, count // 2))]
    for node in nodes:
        if random.random() < 0.9:
            node["labels"] = {"fabric": random.choice(fabrics)}
    models = _models(random, (2, 5), lambda: {**_gang(random), "sameLabel": "fabric"} if random.random() < 0.7 else {
        "gpus": random.choice([1, 2, 4, 8])})
    return {"models": models}, {"nodes": nodes}


def _pairs(random: Random, count: int) -> tuple[Short, Short]:
    """Replicas of several groups inside one label value, such as prefill and decode in one fabric."""
    nodes = _nodes(random, count + 1, random.choice([(8,), (8, 4)]))
    fabrics = "uvw"[:max(2, min(3, count // 2))]
    for node in nodes:
        if random.random() < 0.9:
            node["labels"] = {"fabric": random.choice(fabrics), "type": random.choice("ab")}

    def group(name: str, selector: Short) -> Short:
        resources = {"gpus": random.choice([1, 2, 4, 8])}
        roles = random.choice([["Standalone"], ["Standalone"], ["Leader", "Worker"]])
        return {"name": name, "copies": random.choice([1, 1, 2]),
                "members": [{"role": role, "resources": resources, "nodeSelector": selector} for role in roles]}

    def draw() -> Short:
        if random.random() < 0.25:
            return {**_gang(random), "sameLabel": random.choice(["fabric", {"label": "fabric", "scope": "replica"}])}
        if random.random() < 0.25:
            return {"gpus": random.choice([1, 2, 4, 8])}
        first, second = random.choice([({}, {}), ({}, {}), ({"type": "a"}, {"type": "b"}), ({}, {"type": "a"})])
        return {"workers": [group("prefill", first), group("decode", second)],
                "ranksPerNode": random.choice([1, 1, 2]), "sameLabel": {"label": "fabric", "scope": "replica"}}

    policies = random.choice([[], [], [], [{"maxReplicasPerModel": 2}]])
    return {"models": _models(random, (2, 3), draw), "nodes": policies}, {"nodes": nodes}


def _live_in_the_way(random: Random, count: int) -> tuple[Short, Short]:
    nodes = _nodes(random, count, (8, 4))
    sizes = random.choice([(1, 2, 4, 8), (2, 4, 8), (3, 2), (1, 2, 4, 0.5), (0.6, 0.4, 1)])
    models = _models(random, (2, 6), lambda: {"gpus": random.choice(sizes)})
    replicas = []
    for node in nodes:
        taken = 0
        while random.random() < 0.6 and taken < node["gpus"]:
            model = random.choice([*models, {"key": "unlisted", "gpus": 1}])
            cards = max(1, model["gpus"])
            if taken + cards > node["gpus"]:
                break
            number = sum(replica["model"] == model["key"] for replica in replicas)
            replicas.append({"model": model["key"], "id": number, "node": node["name"], "gpus": model["gpus"],
                             "cards": list(range(taken, taken + cards))})
            taken += cards + random.choice([0, 0, 1])
        if random.random() < 0.1:
            node["state"] = random.choice(["DRAINING", "DEAD"])
    return {"models": models}, {"nodes": nodes, "replicas": replicas}


def _slots(random: Random, count: int) -> tuple[Short, Short]:
    nodes = _nodes(random, count, (8, 4))
    for node in nodes:
        node["labels"] = {"pool": random.choice("xy")}
    policies: list[Short] = [{"maxReplicasPerModel": random.choice([1, 2, 3, 4])}]
    policies += [{"selector": {"pool": "x"}, **random.choice([{"maxReplicasPerModel": 2}, {"cordon": True}])}]
    if random.random() < 0.3:
        policies = policies[1:]

    def draw() -> Short:
        kind = random.random()
        if kind < 0.2:
            return {"cpus": 1}
        return _gang(random, (1, 2, 4)) if kind < 0.35 else {"gpus": random.choice([0.5, 1, 1, 2, 4])}

    return {"models": _models(random, (2, 5), draw), "nodes": policies}, {"nodes": nodes}


def _groups(random: Random, count: int) -> tuple[Short, Short]:
    nodes = _nodes(random, count, (8, 4))
    for node in nodes:
        node["labels"] = {"pool": random.choice("xy")}
        node["cpus"] = random.choice([8, 64])

    def member(role: str, **more: Any) -> Short:
        resources = {"gpus": random.choice([0, 1, 2, 4, 0.5]), "cpus": random.choice([0, 2])}
        if not resources["gpus"]:
            resources["cpus"] = 2
        return {"role": role, "resources": resources,
                "nodeSelector": random.choice([{}, {}, {"pool": "x"}, {"pool": "y"}]), **more}

    def group(number: int) -> Short:
        members = [member("Standalone")]
        if random.random() < 0.4:
            workers = random.randint(1, 2)
            members = [member("Leader"), *(member("Worker", count=random.randint(1, 2)) for _ in range(workers))]
        return {"name": f"g{number}", "copies": random.choice([1, 1, 2]), "members": members}

    def draw() -> Short:
        return {"workers": [group(number) for number in range(random.randint(1, 3))],
                "ranksPerNode": random.choice([1, 1, 2])}

    return {"models": _models(random, (2, 4), draw)}, {"nodes": nodes}


def _card_sizes(random: Random, count: int) -> tuple[Short, Short]:
    """Whole cards that need memory, on nodes whose cards are all alike."""
    nodes = _nodes(random, count, (8, 4))
    for node in nodes:
        node["vram"] = random.choice(["24Gi", "48Gi", "80Gi", "141Gi"])
    models = _models(random, (2, 7), lambda: {
        "gpus": random.choice([1, 1, 2, 4, 8]), "vram": random.choice([0, "20Gi", "40Gi", "79Gi", "120Gi"])})
    return {"models": models}, {"nodes": nodes}


def _mixed(random: Random, count: int) -> tuple[Short, Short]:
    nodes = _nodes(random, count, (8, 4))
    for node in nodes:
        node["labels"] = {"pool": random.choice("xy"), "fabric": random.choice("uv")}
        node["cpus"] = random.choice([16, 64, 128])
    shares = random.choice(SHARES)

    def draw() -> Short:
        kind = random.random()
        if kind < 0.25:
            return {**_gang(random), **random.choice([{}, {"sameLabel": "fabric"}])}
        selector = random.choice([{}, {}, {"pool": "x"}, {"fabric": "u"}])
        return {"gpus": random.choice([*shares, 1, 2, 4]), "cpus": random.choice([0, 1, 4]), "selector": selector}

    policies = random.choice([[], [], [{"selector": {"pool": "x"}, "maxReplicasPerModel": 3}]])
    return {"models": _models(random, (3, 8), draw), "nodes": policies}, {"nodes": nodes}


def _limits(random: Random, count: int) -> tuple[Short, Short]:
    """Spreads with a limit per value, over labels of single nodes and of several; some replicas run already."""
    nodes = _nodes(random, count, (8, 4))
    for node in nodes:
        node["labels"] = {"rack": random.choice("pqr"), "host": node["name"]}
        if random.random() < 0.1:
            del node["labels"][random.choice(["rack", "host"])]

    def draw() -> Short:
        kind = random.random()
        model = _gang(random, (1, 2, 4)) if kind < 0.3 else {"gpus": random.choice([0.5, 1, 1, 2, 4, 8])}
        if kind < 0.3 and random.random() < 0.3:
            model["sameLabel"] = "rack"
        if random.random() < 0.7:
            label = random.choice(["rack", "host", "ray.io/node-id"])
            model["spread"] = {"label": label, "maxPerValue": random.choice([1, 1, 2, 3])}
        return model

    models = _models(random, (2, 5), draw)
    replicas: list[Short] = []
    singles = [model for model in models if "gang" not in model and model["gpus"] <= 1]
    for node in nodes if singles else []:
        if random.random() < 0.3:
            model = random.choice(singles)
            number = sum(replica["model"] == model["key"] for replica in replicas)
            replicas.append({"model": model["key"], "id": number, "node": node["name"], "gpus": model["gpus"],
                             "cards": [0]})
    policies: list[Short] = random.choice([[], [], [{"maxReplicasPerModel": 2}]])
    return {"models": models, "nodes": policies}, {"nodes": nodes, "replicas": replicas}


def _blind(random: Random, count: int) -> tuple[Short, Short]:
    """Shares that need memory, dirty and partly used cards: Ray ignores memory, which lowers the optimum."""
    nodes = _nodes(random, count, (4, 2))
    for node in nodes:
        node["vram"] = random.choice(["24Gi", "48Gi", "80Gi"])
        node["measured"] = {card: random.choice(["3Gi", "500Mi"])
                            for card in range(node["gpus"]) if random.random() < 0.2}
        node["share"] = {card: random.choice([0.3, 0.5]) for card in range(node["gpus"]) if random.random() < 0.2}
    models = _models(random, (2, 5), lambda: random.choice([
        {"gpus": random.choice([0.3, 0.5, 0.6]), "vram": random.choice([0, "10Gi", "20Gi", "40Gi"])},
        {"gpus": random.choice([1, 2]), "vram": random.choice([0, "20Gi", "40Gi"])},
        {"vram": random.choice(["6Gi", "20Gi", "40Gi"])}]))
    return {"models": models}, {"nodes": nodes}


FAMILIES: dict[str, Callable[[Random, int], tuple[Short, Short]]] = {
    "chain": _chain, "odd": _odd, "shares": _shares, "cpu-bound": _cpu_bound, "selectors": _selectors, "gangs": _gangs,
    "domains": _domains, "pairs": _pairs, "live": _live_in_the_way, "slots": _slots, "groups": _groups,
    "card-sizes": _card_sizes, "mixed": _mixed, "limits": _limits, "blind": _blind,
}
BLIND = frozenset({"blind"})
"""Families for which the oracle's optimum is only a bound: the oracle chooses cards, a plan cannot."""
