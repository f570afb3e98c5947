"""Everything a plan says about what is blocked: why, what is in the way, and what would have to be added.

One inquiry serves one plan. Models that are alike share an answer.

The smallest addition is a number of empty nodes of one shape; each is tried first. Shapes in the inventory that match
the selector come first, the smallest of them that fits; if there is none, a shape is derived from the claim. Each model
is considered alone, on what this plan leaves free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count as counting

from fleetctl.documents.fleet import NodePolicy
from fleetctl.documents.inventory import Amounts, Gpu, Node, NodeResources
from fleetctl.documents.plan import Addition, Blocked, InTheWay
from fleetctl.documents.quantity import SHARE
from fleetctl.documents.selector import NODE_ID_LABEL
from fleetctl.planner.placement.claims import Kind, ReplicaShape
from fleetctl.planner.placement.demand import Placed
from fleetctl.planner.placement.greedy import take_again
from fleetctl.planner.placement.ledger.ledger import Ledger
from fleetctl.planner.placement.ledger.replica import Placer
from fleetctl.planner.placement.occupants import Occupants
from fleetctl.planner.placement.policies import ONE_EACH
from fleetctl.planner.placement.reasons.explain import Explanation, explain, fitting_by_value
from fleetctl.planner.placement.reasons.node_shapes import (
    ANY_VALUE,
    MAX_MEMBERS,
    NO_LABELS,
    Fresh,
    Labels,
    NodeShape,
    NodeShapes,
    count_placed,
    empty,
    fewest,
    helpful_places,
    names_a_node,
)
from fleetctl.planner.placement.reasons.node_table import NodeTable, Shortfall
from fleetctl.planner.placement.reasons.removal import HOPELESS, Removal, RemovalSearch

MAX_TRIED_TOGETHER, BATCH = 200, 64
"""Up to 200 members are tried together. More are tried in batches of 64, and the nodes of the batches are added up."""
MOST_TRIALS, WORK = 20, 1_000
"""The most trials of one plan, and their work: each one's missing replicas, a quarter of its nodes, and the added ones.

That is 14 trials for ten nodes with 50 missing replicas, three for 1,000 nodes with a few, and none for 1,000 nodes
with a thousand, where each would take as long as the plan itself.
"""
DOUBLINGS = 6
"""How many times a number that is not enough is doubled."""
Parts = Sequence[tuple[NodeShape, int]]
"""The node shapes of an addition, with the most nodes of each: one for each member they are for."""


class Inquiry:
    """Reads the ledger of `placer` as packing left it; `occupants` = what holds what once the plan is applied.

    `search` finds replicas in the way for all models, since its steps are limited. `before` = the ledger before the
    plan, `placed` = the new replicas.
    """

    def __init__(
        self, placer: Placer, occupants: Occupants, policies: Sequence[NodePolicy], before: Ledger | None = None,
        placed: Sequence[Placed] = (),
    ) -> None:
        self.placer, self.occupants, self.table = placer, occupants, NodeTable(placer.ledger)
        self.search = RemovalSearch(occupants)
        self._before, self._placed = before, placed
        self._lowest = min((one.demand.priority for one in placed), default=0)
        self._shapes = NodeShapes(self.table, occupants.nodes, policies)
        self._without_lower: dict[int, NodeShapes] = {}
        self._own_models = frozenset(one.model for one in occupants.replicas if one.ours)
        self._why: dict[ReplicaShape, Explanation] = {}
        self._additions: dict[tuple[ReplicaShape, int, int], list[Addition] | str] = {}
        self._removals: dict[tuple[ReplicaShape, int], Removal | str] = {}

    def blocked(self, shape: ReplicaShape, replicas: int, priority: int) -> Blocked:
        """Say why `replicas` more of a shape do not fit, and what would help."""
        alike = shape if self.placer.ledger.tells_apart(shape) else replace(shape, key="")
        if alike not in self._why:
            self._why[alike] = explain(shape, self.placer, self.table)
        why = self._why[alike]
        # a model's own replicas are never named, so a model that runs or will run has an answer of its own
        of_its_own = shape if shape.key in self._own_models else alike
        removal: Removal | str = ""
        if why.missing is not None:
            key = of_its_own, priority
            if key not in self._removals:
                self._removals[key] = self.search.find(replace(why.missing, shape=of_its_own), priority)
            removal = self._removals[key]
        added = self._addition(alike, why, replicas, priority)
        if not isinstance(added, str) and isinstance(removal, str) and removal.endswith(HOPELESS):
            removal = ""  # true of the nodes that there are, and read as one of all nodes beside an addition
        return Blocked(
            model=shape.key, replicas=replicas, code=why.code, message=why.message, reasons=why.reasons,
            counted=why.counted, make_room=[] if isinstance(removal, str) else list(self._in_the_way(removal)),
            would_fit=[] if isinstance(added, str) else added,
            no_remedy="; ".join(note for note in (removal, added) if note and isinstance(note, str)),
        )

    def _addition(
        self, shape: ReplicaShape, why: Explanation, replicas: int, priority: int
    ) -> list[Addition] | str:
        if why.misspelled:
            return "no addition is suggested while a label looks misspelled"
        if ONE_EACH.source in why.message:
            return "would fit with a higher maxReplicasPerModel of the nodes, in spec.nodes"
        if why.missing is None:
            return ""
        key, shapes = (shape, replicas, priority), self._shapes
        if self._before is not None and priority > self._lowest:  # without new replicas of a lower priority
            if priority not in self._without_lower:
                ledger = self._before.copied()
                take_again([one for one in self._placed if one.demand.priority >= priority], Placer(ledger))
                self._without_lower[priority] = NodeShapes(NodeTable(ledger), shapes.nodes, shapes.policies)
            shapes = self._without_lower[priority]
        if key not in self._additions:
            found = find_addition(why.missing, replicas, shapes)
            if not found and shapes is not self._shapes:
                found = find_addition(why.missing, replicas, self._shapes)
            self._additions[key] = found
        return self._additions[key]

    def _in_the_way(self, removal: Removal) -> Iterator[InTheWay]:
        for one in map(self.occupants.replicas.__getitem__, removal.gone):
            places = [place for place in removal.places if place in one.places]
            yield InTheWay(
                replica=one.name, model=one.model, replica_id=one.replica_id,
                nodes=[self.placer.ledger.nodes[place].name for place in places],
                frees=sum(one.units(place) for place in places), planned=bool(one.planned), surplus=not one.wanted,
                owner="fleet" if one.ours else "otherFleet" if one.fleet is not None else "foreign",
                fleet=None if one.ours else one.fleet, priority=one.priority)


def find_addition(missing: Shortfall, blocked: int, shapes: NodeShapes) -> list[Addition] | str:
    """Return the nodes that make one more replica fit, with how many make all `blocked` fit; or why no node would help.

    The text is empty if that is not certain.
    """
    shape, policy = missing.shape, shapes.policy_for(missing.selector)
    if names_a_node(missing.selector):
        return "its selector names a node by its id, so no new node can match"
    if shape.spread is not None and shape.spread.most is not None and shape.spread.label != NODE_ID_LABEL:
        return f"no new node is suggested: its value of {shape.spread.label} is not known"
    if found := _find(missing, blocked, shapes):
        return found
    if missing.selector.least_card and not shapes.table.selected(missing.selector).any():
        return "no card of this fleet is large enough for this shape, so more nodes like these would not help"
    if policy.cordoned_by is not None:
        return f"a new node would be cordoned too ({policy.cordoned_by})"
    cap = policy.cap_for(shape.wants_cards)
    return "" if cap.limit else f"a new node would have no slot for it either ({cap.source})"


def _find(missing: Shortfall, blocked: int, shapes: NodeShapes) -> list[Addition]:
    shape, kind, label = missing.shape, (missing.claim, missing.selector), missing.shape.same_label
    if shape.size == 1:  # a node for each; as none fits on existing nodes, all others need new nodes too
        for new in (shapes.smallest([kind]), shapes.derived(kind)):
            if new is not None:
                fresh = new.fresh(1, shapes.policies)
                if each := count_placed(shape, shapes.table, [], fresh=fresh, replicas=blocked):
                    return [_addition(new, 1, -(-blocked // each), NO_LABELS)]
        return []
    tried: list[Labels] = [NO_LABELS]
    if label is not None and missing.within is not None:
        tried = [{label: missing.within}]
    elif label is not None:  # where most of a gang fits already, the nodes' own value, or a new value
        values, counts = fitting_by_value(missing, label)
        most = [{label: values[int(counts.argmax())]}] if counts.max(initial=0) else []
        tried = [*most, NO_LABELS, {label: ANY_VALUE}]
    for labels in tried if shape.size <= MAX_MEMBERS else ():
        for parts in _parts_to_try(shape, kind, shapes):
            if found := _Trial(shape, shapes, labels, parts).find(blocked):
                return found
    return []


def _parts_to_try(shape: ReplicaShape, missing: Kind, shapes: NodeShapes) -> Iterator[Parts]:
    """Yield one shape for all members, one for the missing member alone, and one for each kind of member."""
    kinds = shape.kinds
    if (one := shapes.smallest(tuple(kinds))) is not None:
        yield [(one, sum(kinds.values()))]
    each = {kind: shapes.smallest([kind]) or shapes.derived(kind) for kind in kinds}
    if (first := each[missing]) is not None:
        yield [(first, kinds[missing])]
    known = [(found, kinds[kind]) for kind, found in each.items() if found is not None]
    if len(known) == len(kinds) > 1:
        yield known


@dataclass
class _Trial:
    """One combination of node shapes, tried for one shape of replica; `labels` keep a gang together on new nodes."""

    shape: ReplicaShape
    shapes: NodeShapes
    labels: Labels
    parts: Parts

    def find(self, blocked: int) -> list[Addition]:
        """Return the addition for one replica and for all `blocked`; empty if these shapes are not enough."""
        value = self.labels.get(self.shape.same_label or "")
        places = helpful_places(self.shape, self.shapes.table, value=value)
        most = [count for _, count in self.parts]
        first = self._fewest(places, 1, most, [0] * len(most))
        if first is None or not any(first):
            return []
        for_all = first if blocked == 1 else self._for_all(places, blocked, most, first)
        if for_all is None:
            return []
        return [_addition(shape, count, everything, self.labels)
                for (shape, _), count, everything in zip(self.parts, first, for_all, strict=True) if everything]

    def _for_all(self, places: Sequence[int], blocked: int, most: Sequence[int], first: list[int]) -> list[int] | None:
        """Return how many nodes of each shape all replicas need; None if that is not known.

        Beyond MAX_TRIED_TOGETHER each batch has nodes of its own.
        """
        alone = self._fewest([], 1, most, [0] * len(most))  # later replicas may find nothing free on existing nodes
        if blocked * self.shape.size <= MAX_TRIED_TOGETHER:
            limit = [one + (blocked - 1) * more for one, more in zip(first, alone or most, strict=True)]
            return self._fewest(places, blocked, limit, first)
        if alone is None:
            return None
        together = BATCH // self.shape.size or 1
        batches, rest = divmod(blocked - 1, together)
        found = first
        for replicas, times in ((together, batches), (rest, 1)):
            if replicas and times:
                limit = [replicas * one for one in alone]
                more = self._fewest([], replicas, limit, alone) or limit
                found = [one + times * another for one, another in zip(found, more, strict=True)]
        return found

    def _fewest(
        self, places: Sequence[int], replicas: int, most: Sequence[int], least: Sequence[int]
    ) -> list[int] | None:
        """Return how many nodes of each shape it takes, between `least` and `most`; None if `most` is not enough."""
        def enough(counts: Sequence[int]) -> bool:
            fresh: list[Fresh] = []
            for (shape, _), count in zip(self.parts, counts, strict=True):
                fresh += shape.fresh(count, self.shapes.policies, self.labels, start=len(fresh))
            return count_placed(self.shape, self.shapes.table, places, fresh=fresh, replicas=replicas) == replicas

        return fewest(most, least, enough) if enough(most) else None


def _addition(shape: NodeShape, count: int, for_all: int, labels: Labels) -> Addition:
    total, cards = shape.node.resources.total, shape.node.gpus
    known = [card.memory_total for card in cards if card.memory_total]
    own = shape.node.labels if shape.like is None else {}
    shared = next((label for label, value in labels.items() if value == ANY_VALUE), None)
    return Addition(
        nodes=count, nodes_for_all=for_all, shape=shape.words, like=shape.like,
        gpus=round(total.gpu * SHARE), vram=min(known) if known and len(known) == len(cards) else None,
        cpus=round(total.cpu * SHARE), memory=total.memory, one_value_of=shared,
        labels={**own, **labels} if shared is None else own,
    )


@dataclass
class Additions:
    """How many nodes would help, by plans with nodes added: the number told is what these need.

    An inquiry estimates it for one model alone. A plan also gives the nodes to models that come first, and places new
    replicas of lower priority elsewhere. One trial answers for all models that would use the same nodes.

    `filled` plans the fleet with more nodes and returns how many replicas are missing no more, by place of the model;
    `today` = those of the plan itself; `missing` = the replicas it lacks.
    """

    nodes: Sequence[Node]
    missing: int
    today: Counter[int]
    filled: Callable[[Sequence[Node]], Counter[int]]
    _known: dict[str, Counter[int]] = field(default_factory=dict)
    _left: int = WORK

    def tried(self, blocked: Sequence[Blocked], models: Mapping[str, tuple[int, int]]) -> list[Blocked]:
        """Return the rows with the numbers that plans need; `models` = place and priority by key.

        Those for one replica are tried before those for all, higher priorities first.
        """
        rows = {row.model: row for row in blocked}
        told = sorted([(-models[row.model][1], models[row.model][0], row.model) for row in blocked if row.would_fit])
        for _, place, key in told:
            parts, replicas = rows[key].would_fit, rows[key].replicas
            counts, tried = self._fewest(parts, [one.nodes for one in parts], place, 1)
            rows[key] = rows[key].model_copy(update={"would_fit": [one.model_copy(update={
                "nodes": nodes, "nodes_for_all": max(nodes, one.nodes_for_all) if replicas > 1 else nodes,
                "estimated": not tried}) for one, nodes in zip(parts, counts, strict=True)] if any(counts) else []})
        for _, place, key in told:
            if rows[key].replicas > 1 and (parts := rows[key].would_fit):
                start = [one.nodes_for_all for one in parts]
                counts, tried = self._fewest(parts, start, place, rows[key].replicas)
                rows[key] = rows[key].model_copy(update={"would_fit": [
                    one.model_copy(update={"nodes_for_all": nodes, "estimated_for_all": not tried})
                    for one, nodes in zip(parts, counts, strict=True) if one.nodes or nodes]})
        return list(rows.values())

    def _fewest(
        self, parts: Sequence[Addition], start: Sequence[int], place: int, replicas: int
    ) -> tuple[list[int], bool]:
        """Return how many nodes of each part place `replicas` more, and whether that was tried; zeros if none do.

        Tried = they do, and one node less does not.
        """
        counts, low = list(start), [0] * len(parts)
        for _ in range(DOUBLINGS):
            if (enough := self._enough(parts, counts, place, replicas)) is not False:
                break
            low = [counts[0] + 1] if len(parts) == 1 else low
            counts = [2 * one for one in counts]
        else:
            if not (enough := self._enough(parts, counts, place, replicas)):
                return [0] * len(parts), True
        if enough is None:
            return counts, False
        for part in range(len(parts)):
            step = 1
            while counts[part] > low[part]:
                fewer = [*counts[:part], max(low[part], counts[part] - step), *counts[part + 1:]]
                if (enough := self._enough(parts, fewer, place, replicas)) is None:
                    return counts, False
                if enough:
                    counts, step = fewer, 2 * step
                else:
                    low[part] = fewer[part] + 1
                    step = max(1, (counts[part] - low[part] + 1) // 2)
        return counts, True

    def _enough(self, parts: Sequence[Addition], counts: Sequence[int], place: int, replicas: int) -> bool | None:
        """Return whether a plan with these nodes places `replicas` more; None if no more plans may be made."""
        if not any(counts):
            return False
        told = [(one.like, one.shape, one.labels, one.one_value_of, number)
                for one, number in zip(parts, counts, strict=True) if number]
        if (key := str(told)) not in self._known:
            work = len(self.nodes) // 4 + self.missing + sum(counts)
            if work > self._left or len(self._known) == MOST_TRIALS:
                return None
            self._left -= work
            taken = {text for node in self.nodes for text in (node.id, node.name)}
            names = (name for number in counting(1) if (name := f"new-{number}") not in taken)
            self._known[key] = self.filled([
                empty(model, next(names)) for one, number in zip(parts, counts, strict=True) if number
                for model in [self._node(one)] * number])
        return self._known[key][place] - self.today[place] >= replicas

    def _node(self, one: Addition) -> Node:
        """Return a node as the addition tells it: like an existing one, or with its amounts."""
        labels = {**one.labels, **({one.one_value_of: ANY_VALUE} if one.one_value_of else {})}
        like = next((node for node in self.nodes if node.name == one.like), None) if one.like else None
        if like is not None:
            return like.model_copy(update={"labels": {**like.labels, **labels}})
        cards = [Gpu(index=index, memory_total=one.vram) for index in range(one.gpus // SHARE)]
        total = Amounts(gpu=one.gpus / SHARE, cpu=one.cpus / SHARE, memory=one.memory)
        return Node(id="", name="", labels=labels, resources=NodeResources(total=total), gpus=cards)
