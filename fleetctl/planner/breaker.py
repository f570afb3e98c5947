"""The breaker: models, nodes and cards with several failures in a row cool down. Pure; the time is the inventory's.

Failures of one spec on two or more nodes: the model cools. Of one spec on one node: that spec avoids the node. Of
several models on one node: the node takes no new replicas, or if all were on one of its cards, only that card. The
specs of one model do not add up there: they are tries of one engine, by somebody who corrects its arguments. A card
that has failed itself, as a member has found, cools at once. A cooldown ends with a success, or when the node, the
spec or an uncordon makes the failures irrelevant. A node without the image of a spec is no failure: the spec only
avoids that node for a while.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from operator import itemgetter

from fleetctl.documents.base import as_datetime
from fleetctl.documents.fleet import Cooldown, Member
from fleetctl.documents.inventory import CARD_FAILURES, Failure, Inventory, Node
from fleetctl.documents.quantity import SHARE, grouped
from fleetctl.documents.selector import matches
from fleetctl.fleetfile.resolved import ResolvedFleet, ResolvedModel

FORGOTTEN_S = 24 * 3600
"""Failures further apart than this plus the longest cooldown are not in a row."""
NO_FAILURES = frozenset({"NODE_TAKEN", "NODE_GONE", "NODE_DRAINING", "CARD_COOLING", *CARD_FAILURES})
"""Codes of replicas that were refused by a node: they never ran."""
IMAGE_MISSING = "IMAGE_MISSING"
IMAGE_S = 60
"""How long a spec avoids a node that lacked its image; doubled each time in a row, up to the longest cooldown."""

Spec = tuple[str, str | None]
"""A model's key and its spec hash."""
Subject = tuple[str, str]
"""A model's key and the name of its variant; empty in a model without variants."""


@dataclass(frozen=True, slots=True)
class Cooling:
    """Failures in a row, oldest first, and the end of their cooldown, in seconds since the epoch.

    `over` = the cooldown has ended: one replica may try.
    """

    failures: tuple[Failure, ...]
    until: float
    over: bool

    @property
    def node_ids(self) -> frozenset[str]:
        """The nodes of the failures."""
        return frozenset(node_id for failure in self.failures for node_id in failure.node_ids)

    @property
    def gpu_uuids(self) -> frozenset[str]:
        """The cards that all of the failures have in common."""
        return frozenset.intersection(*(frozenset(failure.gpu_uuids) for failure in self.failures))


@dataclass(frozen=True, slots=True)
class Cooled:
    """What cools: models or variants, nodes by id, `avoided` nodes of one model or variant by id, cards by UUID.

    `no_image` = nodes that lacked the image of a model or variant, likewise: avoided, but nothing cools.
    """

    models: Mapping[Subject, Cooling] = field(default_factory=dict)
    nodes: Mapping[str, Cooling] = field(default_factory=dict)
    avoided: Mapping[Subject, Mapping[str, Cooling]] = field(default_factory=dict)
    cards: Mapping[str, Cooling] = field(default_factory=dict)
    no_image: Mapping[Subject, Mapping[str, Cooling]] = field(default_factory=dict)
    lost: Mapping[str, Mapping[int, Cooling]] = field(default_factory=dict)
    """By node id and number: cards that have failed and whose UUID nobody knows."""

    def __bool__(self) -> bool:
        """Return whether anything cools or is avoided."""
        return bool(self.models or self.nodes or self.avoided or self.cards or self.no_image or self.lost)

    def on_node(self, node: Node) -> Iterator[tuple[int, str, Cooling]]:
        """Yield index, UUID (empty = unknown) and cooldown of each cooling card of a node.

        A number alone stands for a card only as long as the node does not report all of them.
        """
        for card in node.gpus:
            if card.uuid and (one := self.cards.get(card.uuid)) is not None:
                yield card.index, card.uuid, one
        if node.unreported_cards:
            yield from ((index, "", one) for index, one in self.lost.get(node.id, {}).items())

    @property
    def next_try(self) -> float | None:
        """When the first cooldown ends, in seconds since the epoch; None if none is running."""
        found = chain(self.models.values(), self.nodes.values(), self.cards.values(),
                      *(cards.values() for cards in self.lost.values()),
                      *(nodes.values() for nodes in (*self.avoided.values(), *self.no_image.values())))
        return min((one.until for one in found if not one.over), default=None)


@dataclass(frozen=True, slots=True)
class _Past:
    """The known past of a cluster: failures, oldest first, successes with their times, and its nodes."""

    policy: Cooldown
    now: float
    by_spec: Mapping[Spec, Sequence[Failure]]
    successes: Mapping[Spec, Sequence[tuple[float, frozenset[str]]]]
    """The time of each, and its nodes and cards."""
    last_at: Mapping[str, float]
    """The time of the latest success on a node or card."""
    nodes: Mapping[str, Node]

    def last_success(self, spec: Spec, place: str | None = None) -> float:
        """Return the time of the latest success of a spec, on a node or card if one is given; 0 = never."""
        return max((at for at, where in self.successes.get(spec, ()) if place is None or place in where), default=0.0)

    def cooling_at(self, node: Node, specs: Sequence[Spec], uuid: str | None = None) -> Cooling | None:
        """Several models on one node, or on one card of it; a spec that also failed elsewhere does not count."""
        since = max(self.last_at.get(uuid or node.id, 0.0), seconds(node.started_at))
        rows = [self.in_a_row(self.by_spec[spec], since) for spec in specs]
        only_here = [failure for row in rows if all(
            failure.node_ids == [node.id] and (uuid is None or uuid in failure.gpu_uuids) for failure in row)
            for failure in row]
        return self.cooling(sorted(only_here, key=_order), len({failure.model for failure in only_here}))

    def in_a_row(self, failures: Sequence[Failure], since: float) -> list[Failure]:
        """Return the latest failures, oldest first, that are later than `since` and not too far apart."""
        longest_gap, row = FORGOTTEN_S + self.policy.max, list[Failure]()
        for failure in failures:
            at = _at(failure)
            if at <= since:
                continue
            if row and at - _at(row[-1]) > longest_gap:
                row = []
            row.append(failure)
        return row if row and self.now - _at(row[-1]) <= longest_gap else []

    def cooling(self, row: Sequence[Failure], count: int) -> Cooling | None:
        """Return the cooldown of a row that counts as `count` failures; None if these are too few."""
        if count < self.policy.failures:
            return None
        lasting = min(self.policy.max, self.policy.first * 2 ** min(count - self.policy.failures, 40))
        until = min(_at(row[-1]), self.now) + lasting
        return Cooling(tuple(row), until, until <= self.now)


def find_cooled(fleet: ResolvedFleet, inventory: Inventory, *, reloads: bool = False) -> Cooled:
    """Return the models of a fleet, the nodes and the cards that cool at the time of the inventory.

    `reloads` = for in-place updates, whose failures are counted apart from those of starts.
    """
    policy, no_image = fleet.policy.cooldown, dict[Subject, dict[str, Cooling]]()
    counted = [one for one in inventory.failures if one.reload == reloads]
    if any(one.code == IMAGE_MISSING for one in counted):
        no_image = _without_image(fleet, inventory, policy)
        counted = [one for one in counted if one.code != IMAGE_MISSING]
    if not policy.failures or not counted:
        return Cooled(no_image=no_image)
    past = _past(fleet, inventory, policy, counted)
    failed_cards, lost = ({}, {}) if reloads else _of_failed_cards(inventory, past)
    if len(counted) < policy.failures:
        return Cooled(cards=failed_cards, lost=lost, no_image=no_image)
    avoided: dict[Subject, dict[str, Cooling]] = {}
    models: dict[Subject, Cooling] = {}
    for model in alternatives_of(fleet):
        own = past.by_spec.get((model.key, model.spec_hash), ())
        if len(own) < policy.failures:
            continue
        if (found := _of_model(model, own, past)) is not None:
            models[model.key, model.variant] = found
        touched = sorted({node_id for failure in own for node_id in failure.node_ids} & past.nodes.keys())
        avoided[model.key, model.variant] = {node_id: one for node_id in touched
                                             if (one := _of_pair(model, node_id, own, past)) is not None}
    nodes, cards = dict[str, Cooling](), dict[str, Cooling]()
    for node_id, specs in _specs_by_node(past).items():
        if len(specs) < policy.failures:
            continue
        node = past.nodes[node_id]
        found_cards = _of_cards(node, specs, past)
        cards.update(found_cards)
        if (one := past.cooling_at(node, specs)) is not None and not one.gpu_uuids & found_cards.keys():
            nodes[node_id] = one
    return Cooled(models, nodes, {of: found for of, found in avoided.items() if found}, {**cards, **failed_cards},
                  no_image, lost)


def alternatives_of(fleet: ResolvedFleet) -> Iterator[ResolvedModel]:
    """Yield what can fail by itself: each model without variants, and each variant of the others."""
    return (one for model in fleet.models for one in model.alternatives)


def _without_image(fleet: ResolvedFleet, inventory: Inventory, policy: Cooldown) -> dict[Subject, dict[str, Cooling]]:
    """Return by model or variant, and id, the nodes that lacked its image when a replica was to start there."""
    past = _past(fleet, inventory, policy, [one for one in inventory.failures if one.code == IMAGE_MISSING])
    found: dict[Subject, dict[str, Cooling]] = {}
    for model in alternatives_of(fleet):
        failures = past.by_spec.get((model.key, model.spec_hash), ())
        for node_id in sorted({node_id for failure in failures for node_id in failure.node_ids} & past.nodes.keys()):
            if row := _on_node(model, node_id, failures, past):
                until = min(_at(row[-1]), past.now) + min(policy.max, IMAGE_S * 2 ** min(len(row) - 1, 40))
                of_model = found.setdefault((model.key, model.variant), {})
                of_model[node_id] = Cooling(tuple(row), until, until <= past.now)
    return found


def _past(fleet: ResolvedFleet, inventory: Inventory, policy: Cooldown, failures: Sequence[Failure]) -> _Past:
    current = {model.key: model for model in fleet.models}
    nodes = {node.id: node for node in inventory.nodes if node.state != "DEAD"}

    def spec_of(key: str, spec_hash: str | None) -> Spec:
        model = current.get(key)
        return key, next((one.spec_hash for one in (model.alternatives if model else ())
                          if one.has_spec(spec_hash)), spec_hash)

    counted = [one for one in failures if one.code not in NO_FAILURES and _is_counted(one, nodes)]
    by_spec = grouped((spec_of(one.model, one.spec_hash), one) for one in sorted(counted, key=_order))
    now = seconds(inventory.observed_at)
    successes = [(seconds(one.ready_at), spec_of(one.model, one.spec_hash), frozenset(
                     place for member in one.members for place in (member.node_id, *member.gpu_uuids) if place))
                 for one in inventory.replicas if one.ready_at and one.state == "ALIVE" and not one.in_a_row]
    successes += [(min(seconds(one.at), now), spec_of(one.model, one.spec_hash),
                   frozenset((*one.node_ids, *one.gpu_uuids))) for one in inventory.successes]
    last_at = {place: at for at, _, places in sorted(successes, key=itemgetter(0)) for place in places}
    by_success = grouped((spec, (at, places)) for at, spec, places in successes)
    return _Past(policy, now, by_spec, by_success, last_at, nodes)


def _is_counted(failure: Failure, nodes: Mapping[str, Node]) -> bool:
    """Return whether a failure has a time, and none of its nodes was uncordoned since."""
    if failure.at is None:
        return False
    uncordoned = [nodes[node_id].uncordoned_at for node_id in failure.node_ids if node_id in nodes]
    return not any(seconds(at) >= _at(failure) for at in uncordoned)


def _of_model(model: ResolvedModel, failures: Sequence[Failure], past: _Past) -> Cooling | None:
    """One spec on several nodes, or on unknown ones; a usable node that joined since gives it another chance.

    A node counts as a chance only within the longest cooldown after the failure that started the cooling: otherwise a
    model would never cool where nodes join often. Failures before that chance still count for the duration.
    """
    row = past.in_a_row(failures, past.last_success((model.key, model.spec_hash)))
    if len(row) < past.policy.failures:
        return None
    last_chance = _at(row[past.policy.failures - 1]) + past.policy.max
    joined = [seconds(node.started_at) for node in usable_nodes(model, past.nodes.values())]
    since = max((at for at in joined if at <= last_chance), default=0.0)
    latest = [failure for failure in row if _at(failure) > since]
    found = past.cooling(latest, len(row)) if len(latest) >= past.policy.failures else None
    return found if found is not None and len(found.node_ids) != 1 else None


def _of_pair(model: ResolvedModel, node_id: str, failures: Sequence[Failure], past: _Past) -> Cooling | None:
    """One spec on one node."""
    row = _on_node(model, node_id, failures, past)
    return past.cooling(row, len(row))


def _on_node(model: ResolvedModel, node_id: str, failures: Sequence[Failure], past: _Past) -> list[Failure]:
    """Return the latest failures of one spec on one node in a row, oldest first."""
    since = max(past.last_success((model.key, model.spec_hash), node_id),
                seconds(past.nodes[node_id].started_at))
    return past.in_a_row([failure for failure in failures if node_id in failure.node_ids], since)


def _specs_by_node(past: _Past) -> dict[str, list[Spec]]:
    """Return for each node the specs with a failure that is known to be on that node alone."""
    found = grouped((failure.node_ids[0], spec) for spec, failures in past.by_spec.items() for failure in failures
                    if len(failure.node_ids) == 1 and failure.node_ids[0] in past.nodes)
    return {node_id: list(dict.fromkeys(found[node_id])) for node_id in sorted(found)}


def _of_cards(node: Node, specs: Sequence[Spec], past: _Past) -> dict[str, Cooling]:
    """Several models on one card of a node that has others.

    A bad node looks the same at first, since Ray hands out one card first; the next failure, on another card, then
    counts against the node.
    """
    seen = {uuid for spec in specs for failure in past.by_spec[spec] for uuid in failure.gpu_uuids}
    found = {card.uuid: one for card in node.gpus
             if card.uuid in seen and (one := past.cooling_at(node, specs, card.uuid)) is not None}
    return found if len(found) < len(node.gpus) else {}


def _of_failed_cards(inventory: Inventory, past: _Past) -> tuple[dict[str, Cooling], dict[str, dict[int, Cooling]]]:
    """Return the cards that have failed themselves, by UUID, and by node id and number if that is not known.

    The first such failure cools a card. An earlier node on the same machine does not count, as it was a new start.
    """
    counted = [one for one in sorted(inventory.failures, key=_order)
               if one.code in CARD_FAILURES and len(one.node_ids) == 1 and _is_counted(one, past.nodes)]
    by_card = grouped((((failure.node_ids[0], uuid, index)), failure) for failure in counted
                      for uuid, index in [(uuid, -1) for uuid in failure.gpu_uuids]
                      or [("", index) for index in failure.gpu_indices])
    cards, lost = dict[str, Cooling](), dict[str, dict[int, Cooling]]()
    for (node_id, uuid, index), failures in by_card.items():
        if node_id not in past.nodes:
            continue
        row = past.in_a_row(failures, max(past.last_at.get(uuid, 0.0), seconds(past.nodes[node_id].started_at)))
        one = past.cooling(row, len(row) + past.policy.failures - 1) if row else None
        if one is not None and uuid:
            cards[uuid] = one
        elif one is not None:
            lost.setdefault(node_id, {})[index] = one
    return cards, lost


def usable_nodes(model: ResolvedModel, nodes: Iterable[Node]) -> Iterator[Node]:
    """Yield the nodes that could take a member of the model if they were empty."""
    members = [member for group in model.workers for member in group.members]
    return (node for node in nodes if any(may_take(node, member) for member in members))


def may_take(node: Node, member: Member) -> bool:
    """Return whether a node is alive, and has the labels and the number of cards that a member asks for."""
    cards = -(-member.resources.gpus // SHARE) or (1 if member.resources.vram else 0)
    return (node.state == "ALIVE" and node.resources.total.gpu >= cards
            and matches(member.node_selector, node.all_labels))


@lru_cache(maxsize=1 << 14)  # one failure is compared with many others
def seconds(moment: str | None) -> float:
    """Return a `Moment` in seconds since the epoch; 0 = unknown."""
    return as_datetime(moment).timestamp() if moment else 0.0


def _at(failure: Failure) -> float:
    return seconds(failure.at)


def _order(failure: Failure) -> tuple[float, str, str, int]:
    return _at(failure), failure.actor_id or "", failure.model, failure.replica_id
