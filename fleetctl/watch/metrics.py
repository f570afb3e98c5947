"""Prometheus metrics of a watcher: the fleet as last planned, the nodes as last read, and the loop itself.

Names follow Prometheus' conventions: base units, `_total` for counters, `_timestamp_seconds` for moments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from fleetctl.documents.inventory import Inventory
from fleetctl.documents.plan import Plan
from fleetctl.planner.failures import what_cools
from fleetctl.planner.live import pause_of
from fleetctl.version import __version__

if TYPE_CHECKING:
    from fleetctl.watch.pushes import Pushes
    from fleetctl.watch.watcher import Watcher


class WatchCollector:
    """Collects from a watcher on each scrape. Thread-safe: the watcher replaces its values and never mutates them."""

    def __init__(self, watcher: Watcher, pushes: Pushes | None = None) -> None:
        self._watcher = watcher
        self._pushes = pushes

    def collect(self) -> Iterable[Metric]:
        """Return all metrics."""
        yield from _loop(self._watcher)
        if self._pushes is not None:
            yield _counters("watch_pushes", "Webhooks about pushes, by outcome.", self._pushes.counts)
        good, planned, seen = self._watcher.good, self._watcher.planned, self._watcher.seen
        cool = list(what_cools(good.sound(), seen)) if good and seen else []
        if planned is not None:
            yield from _models(planned.plan, {(one.name, one.variant) for one in cool if not one.node}, seen)
        if seen is not None:
            yield from _nodes(seen, {cooling.node for cooling in cool if cooling.node == cooling.name})


def _loop(watcher: Watcher) -> Iterator[Metric]:
    fleet, state = watcher.good.sound().name if watcher.good else "", watcher.state
    yield _gauges("watch_info", "The watched fleet and the revision in force.", ("fleet", "revision", "version"),
                  [((fleet, state.good or "", __version__), 1)])
    for name, text, holds in (
        ("source_up", "Whether the repository answered at the last look.", "source" not in state.conditions),
        ("revision_usable", "Whether the newest revision is the one in force.", state.seen == state.good),
        ("cluster_up", "Whether the cluster was read completely at the last look.", "cluster" not in state.conditions),
        ("in_sync", "Whether an apply of the last good revision has nothing to do.",
         state.good is not None and state.behind_at is None),
        ("refused", "Whether a policy requires a person to apply the newest plan.", "policy" in state.conditions),
        ("locked", "Whether the watch waits for another apply of the fleet.", "locked" in state.conditions),
    ):
        yield _gauge(name, text, float(holds))
    behind_s = 0.0 if state.behind_at is None else watcher.clock() - state.behind_at
    yield _gauge("out_of_sync_seconds", "How long an apply has had something to do; 0 = nothing to do.", behind_s)
    yield _gauge("last_look_timestamp_seconds", "When source and cluster were last read.", watcher.looked_at)
    yield _gauge("plan_seconds", "How long the last plan took, reading the cluster included.", watcher.plan_s)
    yield _gauge("failures", "Number of consecutive failed applies.", state.failures)
    yield _counters("watch_applies", "Applies of this watch, by outcome.", watcher.applies)


def _counters(name: str, text: str, counts: Mapping[str, int]) -> Metric:
    """Return a counter with a value for each outcome."""
    family = CounterMetricFamily(f"fleetctl_{name}", text, labels=("outcome",))
    for outcome, count in sorted(counts.items()):
        family.add_metric((outcome,), count)
    return family


def _gauge(name: str, text: str, value: float) -> Metric:
    return _gauges(f"watch_{name}", text, (), [((), value)])


def _gauges(name: str, text: str, labels: Sequence[str], rows: Iterable[tuple[Sequence[str], float]]) -> Metric:
    """Return a gauge with a value for each row of label values and number."""
    family = GaugeMetricFamily(f"fleetctl_{name}", text, labels=labels)
    for label_values, number in rows:
        family.add_metric(label_values, number)
    return family


def _models(plan: Plan, cool: set[tuple[str, str]], seen: Inventory | None) -> Iterator[Metric]:
    fleet = plan.fleet.name
    counts = {row.key: {"wanted": row.wanted, "ready": row.live - row.starting - row.not_ready,
                        "not_ready": row.not_ready, "starting": row.starting - row.restarting,
                        "restarting": row.restarting, "outdated": row.outdated,
                        "missing": row.create + row.after_pilot + row.blocked}
              for row in plan.models}
    yield _gauges("model_replicas", "Replicas of a model, as last planned.", ("fleet", "model", "state"),
                  (((fleet, key, state), count) for key, by_state in counts.items()
                   for state, count in by_state.items()))
    ways = [(row.key, name) for row in plan.models for name in [one.name for one in row.variants] or [""]]
    yield _gauges("model_cooling", "Whether the model, or a variant of it, is cooling down after several failures.",
                  ("fleet", "model", "variant"), (((fleet, *way), float(way in cool)) for way in ways))
    paused = {key for key in counts if seen is not None and pause_of(seen, fleet, key)}
    yield _gauges("model_paused", "Whether a person has paused the model, or its fleet.", ("fleet", "model"),
                  (((fleet, key), float(key in paused)) for key in counts))
    yield _gauges("model_blocked_replicas", "Blocked replicas, by reason code.", ("fleet", "model", "code"),
                  (((fleet, row.model, row.code), row.replicas) for row in plan.blocked))


def _nodes(seen: Inventory, cool: set[str]) -> Iterator[Metric]:
    alive = [node for node in seen.nodes if node.state == "ALIVE"]
    gpus = ((node.name, state, amounts.gpu if amounts else 0) for node in alive
            for state, amounts in (("total", node.resources.total), ("used", node.resources.used)))
    yield _gauges("node_gpus", "GPUs that a node offers to Ray, and GPUs that Ray has granted.", ("node", "state"),
                  (((name, state), count) for name, state, count in gpus))
    yield _gauges("node_cordoned", "Whether a note in the cluster keeps new replicas off the node.", ("node",),
                  (((node.name,), float(node.cordon is not None)) for node in alive))
    yield _gauges("node_cooling", "Whether the node is cooling down after failures of replicas.", ("node",),
                  (((node.name,), float(node.name in cool)) for node in alive))
