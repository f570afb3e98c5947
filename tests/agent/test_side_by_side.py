"""Many creates side by side: each is still checked, none goes where an earlier one has claimed the room already."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from creating_ray import SHARE, CreatingRay, random_workers
from random_cases import cases

from fleetctl.agent.apply import ApplyRun
from fleetctl.agent.create import SPARE

Planned = list[tuple[str, int, str, int]]


class Time:
    """Simulated time: only waiting advances it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += max(seconds, 0.25)


class World:
    """A Ray that lags, an apply on it, and what the apply has said."""

    def __init__(self, patch: pytest.MonkeyPatch, cards: dict[str, int], **more: Any) -> None:
        self.time = Time()
        self.ray = CreatingRay(cards, self.time, **more)
        self.ray.install(patch)
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.runs: list[ApplyRun] = []

    def emit(self, kind: str, message: str, level: str = "info", **fields: Any) -> None:
        self.events.append((kind, fields))

    def apply(
        self, planned: Planned, *, parallelism: int = 100, wanted: int | None = None
    ) -> dict[str, tuple[str, str]]:
        """Apply, and return the outcome and code of each replica."""
        self.ray.run(planned, self.emit, parallelism=parallelism, wanted=wanted, wait=self.time.wait,
                     started=self.runs.append)
        return {f"{row.model}/{row.replica_id}": (row.outcome, row.code or "")
                for row in self.events[-1][1]["outcomes"]}

    def most_on(self, node: str) -> float:
        """How many cards all creates on a node claim together."""
        return sum(one.share for one in self.ray.actors.values() if one.node == node and one.ended is None) / SHARE


def test_a_full_node_is_filled_at_once_although_ray_shows_no_grant_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, {"n": 8}, lag_s=1.5, worker_s=lambda: 5.0, at_once=4)
    planned = [("m", number, "n", SHARE) for number in range(8)]
    assert set(world.apply(planned).values()) == {("ready", "")}
    assert {one.created for one in world.ray.actors.values()} == {0.0}


def test_a_claim_that_ray_does_not_show_yet_leaves_no_room_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray alone would let all of them wait for a card on this node, until their scheduling timeout."""
    world = World(monkeypatch, {"n": 2}, lag_s=1.5, worker_s=lambda: 30.0)
    result = world.apply([(model, 0, "n", SHARE) for model in "abcd"])
    assert result == {"a/0": ("ready", ""), "b/0": ("ready", ""), "c/0": ("blocked", "NODE_TAKEN"),
                      "d/0": ("blocked", "NODE_TAKEN")}
    assert (len(world.ray.actors), world.ray.killed) == (2, [])


def test_a_claim_counts_once_after_ray_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers take long, so Ray shows grants of replicas that still wait for their workers."""
    world = World(monkeypatch, {"n": 8}, lag_s=0.1, worker_s=lambda: 20.0, at_once=1)
    result = world.apply([("m", number, "n", SHARE) for number in range(8)], parallelism=2)
    assert set(result.values()) == {("ready", "")}


def test_one_read_of_the_cluster_serves_many_creates(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, {f"n{number}": 8 for number in range(50)})
    world.apply([("m", number, f"n{number // 8}", SHARE) for number in range(400)], parallelism=1000)
    assert {one.created for one in world.ray.actors.values()} == {0.0}
    assert world.ray.calls["taken_names"] <= 3, "one is for the replicas that were starting before"
    assert world.ray.calls["hold"] == 400, "but the lock is looked at before each"


def test_a_refusal_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, {"n": 2, "gone": 2})
    world.ray.draining.add("gone")
    result = world.apply([("a", 0, "gone", SHARE), ("a", 1, "n", SHARE), ("a", 2, "nowhere", SHARE),
                          ("a", 3, "n", SHARE)])
    assert result == {"a/0": ("blocked", "NODE_DRAINING"), "a/1": ("ready", ""), "a/2": ("blocked", "NODE_GONE"),
                      "a/3": ("ready", "")}


def test_never_more_than_wanted_although_one_view_serves_all(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, {"n": 8})
    result = world.apply([("a", number, "n", SHARE) for number in range(6)], wanted=4)
    assert Counter(result.values()) == {("ready", ""): 4, ("skipped", "TARGET_REACHED"): 2}


def test_a_stop_in_the_middle_of_a_round_creates_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, {"n": 8})
    names: list[str] = []

    def before(name: str) -> None:
        names.append(name)
        if len(names) == 3:
            world.runs[0].stop.set()

    world.ray.before_create = before
    result = world.apply([("a", number, "n", SHARE) for number in range(8)])
    assert len(world.ray.actors) == 3
    assert Counter(result.values()) == {("starting", "INTERRUPTED"): 3, ("skipped", "INTERRUPTED"): 5}


@pytest.mark.parametrize("seed", range(cases(100)))
def test_random_applies_keep_every_promise(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    cards = {f"n{number}": rng.choice((1, 2, 8)) for number in range(rng.randint(1, 5))}
    world = World(monkeypatch, cards, lag_s=rng.choice((0.0, 0.2, 1.0, 1.9)), worker_s=random_workers(rng),
                  at_once=rng.randint(1, 4))
    planned: Planned = []
    for model in "abc"[:rng.randint(1, 3)]:
        share = rng.choice((SHARE, SHARE, 2 * SHARE, SHARE // 2, SHARE // 4))
        planned += [(model, number, rng.choice(list(cards)), share) for number in range(rng.randint(1, 12))]
    rng.shuffle(planned)
    world.ray.draining = {node for node in cards if rng.random() < 0.1}
    wanted = rng.choice((None, None, rng.randint(1, 6)))
    parallelism = rng.choice((1, 3, 10, 100))
    stop_at = rng.choice((None, rng.randint(1, len(planned))))
    created: list[str] = []

    def before(name: str) -> None:
        assert not world.runs[0].stop.is_set(), "nothing is created after a stop"
        created.append(name)
        waiting = Counter(one.node for one in world.ray.actors.values() if one.up is None or one.up > world.time.now)
        assert sum(waiting.values()) <= parallelism
        assert max(waiting.values(), default=0) <= SPARE * world.ray.at_once
        if stop_at is not None and len(created) >= stop_at:
            world.runs[0].stop.set()

    world.ray.before_create = before
    result = world.apply(planned, parallelism=parallelism, wanted=wanted)
    assert len(created) == len(set(created)), "nothing is doubled"
    assert set(created) <= {f"ModelActor:{model}:{number}" for model, number, *_ in planned}, "the plan's ids only"
    assert wanted is None or max(Counter(name.split(":")[1] for name in created).values(), default=0) <= wanted
    for node, count in cards.items():
        assert world.most_on(node) <= count, "no create waits for room that another one has claimed"
        assert node not in world.ray.draining or world.most_on(node) == 0
    assert world.ray.killed == [], "so none is taken back"
    assert len(result) == len(planned)
    if stop_at is None:
        for model, number, node, share in planned:
            kind, code = result[f"{model}/{number}"]
            assert kind in ("ready", "blocked", "skipped"), (kind, code)
            if code == "NODE_TAKEN":
                assert world.most_on(node) + share / SHARE > cards[node], "only what does not fit is refused"
