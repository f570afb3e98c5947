"""What members take of their cards: as measured on cards that one member holds alone, and the claim of `vram: auto`.

The cluster reports what is in use on a card, not by whom: a card counts only if all of its use is that of one member.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property

from fleetctl.documents.base import as_datetime
from fleetctl.documents.fleet import Member, NodePolicy, WorkerGroup
from fleetctl.documents.inventory import Gpu, Inventory, Node, Replica, ReplicaMember, Start, card_indices
from fleetctl.documents.quantity import SHARE, grouped
from fleetctl.documents.selector import matches
from fleetctl.fleetfile.resolved import ResolvedModel
from fleetctl.planner.placement.policies import policy_of
from fleetctl.sizing.card_bytes import card_need, fills_a_share
from fleetctl.sizing.fit import CardKind, judge
from fleetctl.sizing.groups import cards_of, cards_of_member, line_of

GIB = 1 << 30
STEP = GIB // 4
"""Claims of measured bytes are multiples of this, so that a little more in use does not change every plan."""
SETTLED_S = 60.0
"""How long a replica must have been ready: the use of cards may be 20 s old, and engines load until they are ready."""


class CardUse:
    """What is in use on the cards of an inventory, and how many members hold each."""

    def __init__(self, seen: Inventory) -> None:
        self._observed_at = as_datetime(seen.observed_at)
        self._cards = {node.id: node.gpus for node in seen.nodes}
        self._holders = Counter((member.node_id or "", index) for replica in seen.replicas
                                for member in replica.members for index in self._held(member))

    def measured(self, replica: Replica, member: ReplicaMember) -> int | None:
        """Return the most that a member has in use on one of its cards, in bytes; None if that is not known of each."""
        if (replica.ready_at is None or replica.not_ready_since is not None or (
                self._observed_at - as_datetime(replica.ready_at)).total_seconds() < SETTLED_S):
            return None
        held = self._held(member)
        cards = [card for card in self._cards.get(member.node_id or "", ()) if card.index in held]
        if not cards or any(self._holders[member.node_id or "", card.index] > 1 or not _is_alone(member, card)
                            for card in cards):
            return None
        return max(card.memory_used or 0 for card in cards)

    def estimated(self, model: ResolvedModel, member: ReplicaMember) -> int | None:
        """Return what the engine of a described model's member is estimated to take of its card; None if unknown."""
        group = next((group for group in model.workers if group.name == member.group), None)
        memory = max((card.memory_total or 0 for card in self._cards.get(member.node_id or "", ())), default=0)
        if group is None or model.description is None or not memory or not cards_of(group):
            return None
        return card_need(model.description, line_of(group, model.key), cards=cards_of(group), memory=memory).takes

    def _held(self, member: ReplicaMember) -> list[int]:
        return card_indices(member, self._cards.get(member.node_id or "", ()))


def _is_alone(member: ReplicaMember, card: Gpu) -> bool:
    """Return whether nothing but the member may have memory on a card that it holds: no other grant, no other program.

    Its engine is one process on each card; a driver in a container may show none.
    """
    own = card.share is not None and round(card.share * SHARE) == min(member.gpus, SHARE)
    alone = len(card.processes) == 1 or (not card.processes and not card.memory_foreign)
    return own and alone and bool(card.memory_used) and not card.unified


def largest_card(node: Node, policies: Sequence[NodePolicy]) -> int:
    """Return the memory of a node's largest card in bytes, as the cluster or a policy tells it; 0 = unknown."""
    if not node.gpus:
        return 0
    return max(card.memory_total or 0 for card in node.gpus) or policy_of(node, policies).gpu_memory or 0


class SeenCards:
    """The cards of an inventory, and what runs or ran on them by model; each is read once for all models of a plan."""

    def __init__(self, seen: Inventory, policies: Sequence[NodePolicy]) -> None:
        self._seen = seen
        self.sizes = {node.id: largest_card(node, policies) for node in seen.nodes}
        """By node id, the memory of its largest card; 0 = unknown."""
        self.present = {*self.sizes.values()}
        self._allowed: dict[tuple[tuple[str, str], ...], list[int]] = {}

    def proven_cards(self, model: ResolvedModel) -> dict[str, int]:
        """Return the memory of the smallest cards that are proven to hold each group; without groups that are not."""
        return {group: min(known) for group, node_ids in self.proven_on(model).items()
                if (known := [size for node_id in node_ids if (size := self.sizes.get(node_id))])}

    def proven_on(self, model: ResolvedModel) -> dict[str, set[str]]:
        """Return the ids of the nodes whose cards hold each group of a model's spec, whatever is computed of it: a
        replica is ready there, or was. Of an ended one it is not known which member was where, so it proves only a
        single group.
        """
        found = defaultdict[str, set[str]](set)
        for replica in self._replicas.get(model.key, ()):
            if replica.ready_at is not None and model.has_spec(replica.spec_hash):
                for member in replica.members:
                    if member.gpus or member.vram:
                        found[member.group or ""].add(member.node_id or "")
        if len(model.workers) == 1 and all(map(cards_of_member, model.workers[0].members)):
            for start in self._starts.get(model.key, ()):
                if model.has_spec(start.spec_hash):
                    found[model.workers[0].name].update(start.node_ids)
        return found

    def allowed(self, member: Member) -> list[int]:
        """Return the known sizes of the largest cards of the living nodes that a member's selector allows, sorted."""
        selector = tuple(sorted(member.node_selector.items()))
        if selector not in self._allowed:
            self._allowed[selector] = sorted({size for node in self._seen.nodes if node.state == "ALIVE" and (
                size := self.sizes[node.id]) and (not selector or matches(member.node_selector, node.all_labels))})
        return self._allowed[selector]

    def measured(self, model: ResolvedModel, group: WorkerGroup) -> Iterator[int]:
        """Yield what members of one group of a model's spec were measured to take of a card, in bytes."""
        for replica in self._replicas.get(model.key, ()):
            if replica.level == "HOT" and model.has_spec(replica.spec_hash):
                for member in replica.members:
                    if member.group == group.name and (taken := self._use.measured(replica, member)) is not None:
                        yield taken

    @cached_property
    def _replicas(self) -> dict[str, list[Replica]]:
        return grouped((replica.model, replica) for replica in self._seen.replicas)

    @cached_property
    def _starts(self) -> dict[str, list[Start]]:
        return grouped((start.model, start) for start in self._seen.starts)

    @cached_property
    def _use(self) -> CardUse:
        return CardUse(self._seen)


def auto_vram(model: ResolvedModel, group: WorkerGroup, member: Member, seen: SeenCards | None) -> int:
    """Return the bytes of each card that a member of a described model claims with `vram: auto`.

    What equal replicas were measured to take, if the engine does not fill a set share of any card. Else an estimate
    for the cards that its selector allows and that hold the model: of whole cards, which nothing shares, for the
    smallest of them; of a share for the largest, since one claim counts on all. `seen` None = no cards are known.
    """
    description, line, cards = model.description, line_of(group, model.key), cards_of(group)
    if description is None:
        return 0
    if seen is not None and not fills_a_share(line) and (found := [*seen.measured(model, group)]):
        return -(-max(found) // STEP) * STEP
    takes = {size: min(takes, size - max(GIB, size // 50)) for size in (seen.allowed(member) if seen else ())
             if (takes := card_need(description, line, cards=cards, memory=size).takes)}
    holding = [size for size in takes
               if judge(description, line, cards=cards, card=CardKind("", size, 1, 1)).kind == "fits"] or [*takes][-1:]
    if not holding:
        return card_need(description, line, cards=cards, memory=None).least
    return takes[holding[0 if model.dedicated or member.resources.gpus >= SHARE else -1]]
