"""The smallest addition that would make a replica fit: how many empty nodes of which shape; each is tried first.

Shapes that exist in the inventory and match the selector come first, the smallest that does; where none does, a shape
is derived from the claim. Counted for the model alone, on what this plan leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fleetctl.documents.plan import Addition
from fleetctl.documents.quantity import SHARE
from fleetctl.documents.selector import NODE_ID_LABEL
from fleetctl.planner.placement.claims import Kind, ReplicaShape
from fleetctl.planner.placement.reasons.explain import fitting_by_value
from fleetctl.planner.placement.reasons.node_shapes import NodeShape, NodeShapes, names_a_node
from fleetctl.planner.placement.reasons.shortfall import Shortfall
from fleetctl.planner.placement.reasons.trial import MAX_MEMBERS, Fresh, count_placed, fewest, helpful_places

MAX_TRIED_TOGETHER, BATCH = 200, 64
"""More members than this are not tried together: batches of so many are, and their nodes are added up."""


class _Part(NamedTuple):
    """Nodes of one shape that an addition may have; `most` = one for each member they are for."""

    shape: NodeShape
    most: int


@dataclass
class _Seeker:
    """One search for the addition that serves one shape of replica."""

    shape: ReplicaShape
    shapes: NodeShapes
    label: tuple[str, str] | None
    """What a new node must have so that a gang stays together."""

    def parts(self, missing: Kind) -> list[list[_Part]]:
        """Return what to try: one shape for everything, one for the member that is missing, or one for each kind."""
        kinds = self.shape.kinds
        each = {kind: self.shapes.smallest([kind]) or self.shapes.derived(*kind) for kind in kinds}
        choices = []
        one = self.shapes.smallest(tuple(kinds))
        if one is not None:
            choices.append([_Part(one, sum(kinds.values()))])
        if (first := each[missing]) is not None:
            choices.append([_Part(first, kinds[missing])])
        known = [_Part(shape, kinds[kind]) for kind, shape in each.items() if shape is not None]
        if len(known) == len(kinds) > 1:
            choices.append(known)
        return choices

    def seek(self, parts: Sequence[_Part], blocked: int) -> list[Addition]:
        """Return the addition made of these parts; nothing where they will not do, or that is not known."""
        places = helpful_places(self.shape, self.shapes.table, value=self.label[1] if self.label else None)
        most = [part.most for part in parts]
        first = self._fewest(parts, places, 1, most, [0] * len(parts))
        if first is None or not any(first):
            return []
        for_all = self._for_all(parts, places, blocked, most, first)
        if for_all is None:
            return []
        return [_addition(part.shape, count, everything, self.label)
                for part, count, everything in zip(parts, first, for_all, strict=True) if everything]

    def _for_all(self, parts: Sequence[_Part], places: Sequence[int], blocked: int, most: Sequence[int],
                 first: list[int]) -> list[int] | None:
        """Return how many nodes of each part serve all; beyond what is tried together, each batch has its own."""
        if blocked == 1:
            return first
        alone = self._fewest(parts, [], 1, most, [0] * len(parts))  # the next may find nothing of what there is
        if blocked * self.shape.size <= MAX_TRIED_TOGETHER:
            limit = [one + (blocked - 1) * more for one, more in zip(first, alone or most, strict=True)]
            return self._fewest(parts, places, blocked, limit, first)
        if alone is None:
            return None
        together = BATCH // self.shape.size or 1
        batches, rest = divmod(blocked - 1, together)
        found = first
        for replicas, times in ((together, batches), (rest, 1)):
            if replicas and times:
                limit = [replicas * one for one in alone]
                more = self._fewest(parts, [], replicas, limit, alone) or limit
                found = [one + times * another for one, another in zip(found, more, strict=True)]
        return found

    def _fewest(self, parts: Sequence[_Part], places: Sequence[int], replicas: int, most: Sequence[int],
                least: Sequence[int]) -> list[int] | None:
        """Return how many nodes of each part it takes, between `least` and `most`; None when `most` will not do."""
        def enough(counts: Sequence[int]) -> bool:
            fresh: list[Fresh] = []
            for part, count in zip(parts, counts, strict=True):
                fresh += part.shape.fresh(count, self.shapes.policies, self.label, start=len(fresh))
            return count_placed(self.shape, self.shapes.table, places, fresh=fresh, replicas=replicas) == replicas

        return fewest(most, least, enough) if enough(most) else None


def find_addition(missing: Shortfall, blocked: int, shapes: NodeShapes) -> list[Addition]:
    """Return the nodes that make one more replica of the shape fit, and how many make all `blocked` fit; or nothing."""
    shape = missing.shape
    if _limited_by_value(shape):
        return []
    if shape.size == 1:
        return _for_one_member(missing, blocked, shapes)
    if shape.size > MAX_MEMBERS:
        return []
    for label in _labels_to_try(missing):
        seeker = _Seeker(shape, shapes, label)
        for parts in seeker.parts((missing.claim, missing.selector)):
            if found := seeker.seek(parts, blocked):
                return found
    return []


def _limited_by_value(shape: ReplicaShape) -> bool:
    """Return whether a new node helps depends on its value of a label, which is not known."""
    return shape.spread is not None and shape.spread.most is not None and shape.spread.label != NODE_ID_LABEL


def _labels_to_try(missing: Shortfall) -> list[tuple[str, str] | None]:
    """Return what keeps a gang together: the domain where most of it fits already, the nodes' own value, a new one."""
    label = missing.shape.same_label
    if label is None:
        return [None]
    if missing.within is not None:
        return [(label, missing.within)]
    values, counts = fitting_by_value(missing, label)
    most = [(label, values[int(counts.argmax())])] if counts.max(initial=0) else []
    return [*most, None, (label, "new")]


def _for_one_member(missing: Shortfall, blocked: int, shapes: NodeShapes) -> list[Addition]:
    """One node for one replica; as none fits on what there is, all others need new ones, too."""
    kind = missing.claim, missing.selector
    for shape in (shapes.smallest([kind]), shapes.derived(*kind)):
        fresh = [] if shape is None else shape.fresh(1, shapes.policies)
        each = count_placed(missing.shape, shapes.table, [], fresh=fresh, replicas=blocked)
        if shape is not None and each:
            return [_addition(shape, 1, -(-blocked // each), None)]
    return []


def _addition(shape: NodeShape, count: int, for_all: int, label: tuple[str, str] | None) -> Addition:
    total, cards = shape.node.resources.total, shape.node.gpus
    known = [card.memory_total for card in cards if card.memory_total]
    labels = shape.node.labels if shape.like is None else {}
    return Addition(
        nodes=count, nodes_for_all=for_all, shape=shape.words, like=shape.like,
        gpus=round(total.gpu * SHARE), vram=min(known) if known and len(known) == len(cards) else None,
        cpus=round(total.cpu * SHARE), memory=total.memory, labels={**labels, **(dict([label]) if label else {})},
    )


def why_nothing(missing: Shortfall, shapes: NodeShapes) -> str:
    """Say why no new node would do, where that is certain; else an empty text."""
    if names_a_node(missing.selector):
        return "its selector names a node by its id, so no new node can serve"
    if missing.shape.spread is not None and _limited_by_value(missing.shape):
        return f"no new node is named, as its value of {missing.shape.spread.label} is not known"
    policy = shapes.policy_for(missing.selector)
    if policy.cordoned_by is not None:
        return f"a new node would be cordoned, too ({policy.cordoned_by})"
    cap = policy.cap_for(missing.shape.wants_cards)
    return "" if cap.limit else f"a new node would have no slot for it, either ({cap.source})"
