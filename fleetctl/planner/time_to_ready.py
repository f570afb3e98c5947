"""How long new replicas will take until they are ready, from how long earlier starts took.

The starts that count are those of the same spec, else those of the same model; and only those that got their weights
in the same way: a start from an origin says little of one from a peer. Where there is none, the size of the weights
counts, and how fast starts of other models were on that node, else in the cluster.

The range is for one further start. It is the prediction interval of a normal sample for the logarithms of the times
(G. J. Hahn and W. Q. Meeker, Statistical Intervals, section 4.7), at 95 %, so that it holds nine of ten starts even if
their distribution is skewed. It leaves out no start that counts: from 19 on, that alone holds nine of ten, whatever the
distribution. Fewer than LEAST_STARTS give no range.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from fleetctl.documents.base import span_text
from fleetctl.documents.inventory import WEIGHTS_FROM, Inventory, Start
from fleetctl.documents.quantity import count_of, format_bytes, grouped
from fleetctl.fleetfile.resolved import ResolvedModel
from fleetctl.planner.weights import own_starts

LEAST_STARTS, MOST_STARTS = 3, 20
LEAST_SPREAD = 0.05
"""The smallest standard deviation of the logarithms: a few starts may agree by chance."""
QUANTILES = (4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
             2.110, 2.101, 2.093)
"""Student's t at 97.5 %, for LEAST_STARTS to MOST_STARTS starts: 2 to 19 degrees of freedom."""
HOW = {"origin": "with weights from their origin", "peer": "with weights from another replica",
       "disk": "with weights on the disk", "first": "on nodes new to it", "again": "on nodes that it has run on"}
"""How a start gets its weights, in words. The last two are of members whose file names no weights: what the first start
on a node downloads, later ones may find there. Without any start of the one kind, the other tells a time, and no range.
"""
ANY_NODE = ""
OTHERWISE = {"first": "again", "again": "first"}


def add_times(
    actions: Sequence[dict[str, Any]], models: Sequence[ResolvedModel], inventory: Inventory
) -> dict[str, str]:
    """Add `readyIn` to the creates of which it is known, after their `weights`; return it in words, by model."""
    known, texts = _Known(models, inventory), defaultdict[str, dict[str, None]](dict)
    for action in actions:
        if action["op"] == "create" and (time := known.time_of(action)):
            later = {key: action.pop(key) for key in list(action) if key > "readyIn"}  # keys stay sorted
            action |= {"readyIn": time, **later}
            texts[action["model"]][_text_of(time)] = None
    return {key: f"ready in about {'; or in about '.join(found)}" for key, found in texts.items()}


def _text_of(time: dict[str, Any]) -> str:
    within = f" ({span_text(time['least'])} to {span_text(time['most'])})" if "most" in time else ""
    return f"{span_text(time['about'])}{within}: {time['why']}"


def range_of(seconds: Sequence[float]) -> tuple[int, int] | None:
    """Return the range of the next start after these, in whole seconds; None if they are too few to say."""
    if len(seconds) < LEAST_STARTS:
        return None
    logs = [math.log(one) for one in seconds]
    quantile = QUANTILES[min(len(logs), MOST_STARTS) - LEAST_STARTS]
    middle = sum(logs) / len(logs)
    spread = math.sqrt(sum((one - middle) ** 2 for one in logs) / (len(logs) - 1))
    half = quantile * max(spread, LEAST_SPREAD) * math.sqrt(1 + 1 / len(logs))
    return (math.floor(min(math.exp(middle - half), *seconds)), math.ceil(max(math.exp(middle + half), *seconds)))


class _Known:
    """What the starts of an inventory, oldest first, say of new ones."""

    def __init__(self, models: Sequence[ResolvedModel], inventory: Inventory) -> None:
        self._models = {model.key: model for model in models}
        self._names = {node.id: node.name for node in inventory.nodes}
        self._times: dict[tuple[str, str, str], dict[str, Any] | None] = {}
        self._sizes = Counter[str]()
        has_run, holds = set[tuple[str, str]](), set[tuple[str, str]]()
        starts = list[tuple[str, Start]]()
        for start in inventory.starts:
            on = {(start.model, node_id) for node_id in start.node_ids}
            how = start.weights if start.artifact else "again" if on and on <= has_run else "first"
            starts += [(how, start)] if how in HOW else []
            has_run |= on
            holds |= {(start.artifact, node_id) for node_id in start.node_ids if start.artifact}
        for replica in inventory.replicas:
            for member in replica.members:
                has_run.add((replica.model, member.node_id or ""))
                if weights := member.weights:
                    holds.add((weights.artifact, member.node_id or ""))
                    self._sizes[weights.artifact] = max(self._sizes[weights.artifact], weights.bytes or 0)
        holds |= {(cold.artifact, node.id) for node in inventory.nodes for cold in node.cold or ()}
        self._has_run, self._holds = has_run, holds
        self._alike = grouped(((start.model, how), start) for how, start in starts)
        self._rates = grouped(((how, node_id), size / start.seconds) for how, start in starts
                              if (size := self._loaded_by(start)) for node_id in {ANY_NODE, *start.node_ids})
        self._medians: dict[tuple[str, tuple[str, ...]], tuple[float, str]] = {}

    def time_of(self, action: dict[str, Any]) -> dict[str, Any] | None:
        """Return the TimeToReady of a create as a document with sorted keys; None if nothing is known."""
        key = action["model"], action["specHash"], self._how(action)
        if key not in self._times:
            self._times[key] = self._from_starts(self._spec_of(*key[:2]), key[2])
        return self._times[key] or self._from_bytes(action, key[2])

    def _spec_of(self, model: str, spec_hash: str | None) -> ResolvedModel:
        """Return the model, or the variant of it with this spec; the first one if there is none."""
        found = self._models[model].alternatives
        return next((one for one in found if one.has_spec(spec_hash)), found[0])

    def _how(self, action: dict[str, Any]) -> str:
        found = set(self._weights_from(action["members"]))
        new = any((action["model"], member["nodeId"]) not in self._has_run for member in action["members"])
        return next((kind for kind in WEIGHTS_FROM if kind in found), "first" if new else "again")

    def _weights_from(self, members: Sequence[dict[str, Any]]) -> Iterator[str]:
        for member in members:
            if weights := member.get("weights"):
                at = member["nodeId"]
                here = (weights["artifact"], at) in self._holds or any(
                    source["nodeId"] == at for source in weights["sources"])
                yield "disk" if here else "peer" if weights["sources"] else "origin"

    def _from_starts(self, model: ResolvedModel, how: str) -> dict[str, Any] | None:
        known = how if (model.key, how) in self._alike else OTHERWISE.get(how, how)
        starts = own_starts(model, self._alike.get((model.key, known), ()))[-MOST_STARTS:]
        if not starts:
            return None
        seconds = [start.seconds for start in starts]
        first, last = span_text(round(min(seconds))), span_text(round(max(seconds)))
        spec = "" if model.has_spec(starts[0].spec_hash) else " with another spec"
        time = {"about": round(statistics.median(seconds)),
                "why": f"{count_of(len(starts), 'start')} of it{spec} {HOW[known]} took {first}"
                       f"{f' to {last}' if last != first else ''}"}
        if known == how and (within := range_of(seconds)):
            time |= {"least": within[0], "most": within[1]}
        return dict(sorted(time.items()))

    def _from_bytes(self, action: dict[str, Any], how: str) -> dict[str, Any] | None:
        size, nodes = self._to_load(action), tuple(dict.fromkeys(member["nodeId"] for member in action["members"]))
        if not size or (how, ANY_NODE) not in self._rates:
            return None
        if (how, nodes) not in self._medians:
            there = [rate for node_id in nodes for rate in self._rates.get((how, node_id), ())]
            rates = there or self._rates[how, ANY_NODE]
            names = ", ".join(self._names.get(node_id, node_id) for node_id in nodes)
            where = f"on {names}" if there else "in this cluster"
            rate, others = statistics.median(rates), f"{count_of(len(rates), 'start')} of other models"
            alike = f"{others} {HOW[how]}" if how in WEIGHTS_FROM else others
            self._medians[how, nodes] = rate, f"at {format_bytes(round(rate))}/s, as in {alike} {where}"
        rate, why = self._medians[how, nodes]
        return {"about": round(size / rate), "why": f"{format_bytes(size)} {why}"}

    def _loaded_by(self, start: Start) -> int:
        """Return how many bytes a start has loaded on the node with most of them; 0 = unknown."""
        model = self._spec_of(start.model, start.spec_hash) if start.model in self._models else None
        described = model.description.loaded // max(1, len(start.node_ids)) if model and model.description else 0
        return start.bytes or described

    def _to_load(self, action: dict[str, Any]) -> int:
        """Return the same of a new replica."""
        by_node = Counter[str]()
        for member in action["members"]:
            if weights := member.get("weights"):
                offered = next((source["bytes"] for source in weights["sources"] if source["bytes"]), 0)
                by_node[member["nodeId"]] += offered or self._sizes[weights["artifact"]]
        description = self._spec_of(action["model"], action["specHash"]).description
        nodes = {one["nodeId"] for one in action["members"]}
        described = description.loaded // len(nodes) if description else 0
        return max(by_node.values(), default=0) or described
