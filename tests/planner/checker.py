"""An independent check of a plan against its fleet and inventory. Shares no code with the planner.

It replays the actions in order on a simulated cluster whose cards are handed out by Ray's rule.
"""

from __future__ import annotations

from collections import Counter

from simulated import LIVE, WHOLE, SimNode, live_replicas, selects, simulate

from fleetctl.documents.canonical import canonical_json, sha256_hex
from fleetctl.documents.fleet import SameLabel
from fleetctl.documents.inventory import Inventory
from fleetctl.documents.plan import Action, Plan
from fleetctl.documents.selector import parse_label_selector
from fleetctl.fleetfile.resolved import ResolvedFleet, ResolvedModel

Spec = tuple["str | None", "str | None"]
Crowds = Counter[tuple[str, "str | None"]]
"""Replicas by model and value of its spread label."""

CODES = {
    "NO_NODES", "NODE_SELECTOR_MISMATCH", "CORDONED", "NODE_DRAINING", "SLOTS_FULL", "SPREAD_FULL", "INSUFFICIENT_GPU",
    "INSUFFICIENT_VRAM", "CARD_MEMORY_UNKNOWN", "CARD_IN_USE", "INSUFFICIENT_CPU", "INSUFFICIENT_MEMORY",
    "GANG_NEEDS_NODES", "RANKS_SHARE_A_CARD", "SAME_LABEL_DOMAIN", "CLAIMED_BY_FLEET", "PAUSED", "QUOTA",
    "UPDATE_NEEDS_ROOM", "COOLING_DOWN", "IMAGE_MISSING", "NODE_COOLING", "CARD_COOLING", "WAITS_FOR_NODES",
    "MODEL_TOO_LARGE",
    "MAX_NODES", "VARIANT_FULL",
}


def check_plan(plan: Plan, fleet: ResolvedFleet, inventory: Inventory) -> None:
    """Raise AssertionError when the plan breaks any rule."""
    adopt = plan.options.adopt_from
    nodes = simulate(inventory, fleet.policies, fleet.name, adopt)
    models = {model.key: model for model in fleet.models}
    live = _specs_of_ours(inventory, fleet.name, adopt)
    _check_document(plan, models)
    plan = with_all_started(plan)
    _check_counts(plan, fleet, live)
    _check_ids(plan, inventory, fleet.name, adopt)
    taken_slots: dict[tuple[str, str], set[int]] = {}
    crowds = crowded_values(fleet, inventory, adopt)
    for action in plan.starts:
        chosen = variant_of(models[action.model], action.variant)
        assert action.spec_hash == chosen.spec_hash
        _check_geometry(action, chosen, nodes)
        _check_slots(action, chosen, nodes, taken_slots)
        _check_spread(action, chosen, nodes, crowds)
        cards_of: dict[tuple[str, int, str], set[int]] = {}
        for member in action.members:
            node = nodes[member.node_id]
            assert node.takes_new, f"{action.id}: {member.node} accepts no new replicas"
            cards = node.take(member.gpus, member.vram, member.cpus, member.memory)
            assert cards is not None, f"{action.id}: {member.node} is over-committed"
            of_gang = cards_of.setdefault((member.group, member.copy_index, member.node_id), set())
            assert not of_gang.intersection(cards), f"{action.id}: two ranks on one card of {member.node}"
            of_gang.update(cards)
    _check_explained(plan, models, nodes, crowds)


def with_all_started(plan: Plan) -> Plan:
    """The plan as if nothing waited for a pilot: all other rules hold for it."""
    rows = [row.model_copy(update={"create": row.create + row.after_pilot, "variants": [
        one.model_copy(update={"create": one.create + one.after_pilot}) for one in row.variants]})
        for row in plan.models]
    summary = plan.summary.model_copy(update={"create": plan.summary.create + plan.summary.after_pilot})
    return plan.model_copy(update={"actions": [*plan.actions, *plan.after_pilot], "models": rows, "summary": summary})


def variant_of(model: ResolvedModel, name: str | None) -> ResolvedModel:
    """The variant of this name; the model itself if it has none."""
    [found] = [one for one in model.variants if one.variant == name] if model.variants else [model]
    assert name == (found.variant or None)
    return found


def spread_of(model: ResolvedModel) -> tuple[str, int | None] | None:
    """The label a model is spread by, and how many replicas may touch one value; None = no limit."""
    written = model.placement.spread
    if written is None or isinstance(written, str):
        return None if written is None else (written, None)
    return written.label, written.max_per_value


def value_on(node: SimNode, label: str) -> str | None:
    return {"ray.io/node-id": node.node.id, **node.node.labels}.get(label)


def crowded_values(fleet: ResolvedFleet, inventory: Inventory, adopt: str | None) -> Crowds:
    """The number of live replicas of each model per value of its spread label."""
    labels = {node.id: {"ray.io/node-id": node.id, **node.labels} for node in inventory.nodes}
    spreads = {model.key: spread for model in fleet.models if (spread := spread_of(model))}
    crowds: Crowds = Counter()
    for replica in live_replicas(inventory):
        ours = replica.fleet is not None and replica.fleet in (fleet.name, adopt) and replica.replica_id is not None
        if ours and replica.level == "HOT" and replica.model in spreads:
            touched = {member.node_id for member in replica.members if member.node_id in labels}
            crowds.update({(replica.model, labels[node].get(spreads[replica.model][0])) for node in touched})
    return crowds


def _check_spread(action: Action, model: ResolvedModel, nodes: dict[str, SimNode], crowds: Crowds) -> None:
    spread = spread_of(model)
    if spread is None:
        return
    touched = {value_on(nodes[member.node_id], spread[0]) for member in action.members}
    for value in touched:
        crowds[action.model, value] += 1
        if spread[1] is not None:
            assert value is not None, f"{action.id} is on a node without {spread[0]}"
            assert crowds[action.model, value] <= spread[1], f"{action.id}: {spread[0]}={value} has too many"


def _specs_of_ours(inventory: Inventory, fleet: str, adopt: str | None) -> dict[str, list[Spec]]:
    """The spec hash of each live replica of ours and the variant in its mark, by model."""
    specs: dict[str, list[Spec]] = {}
    for replica in live_replicas(inventory):
        if replica.fleet is not None and replica.fleet in (fleet, adopt) and replica.replica_id is not None \
                and replica.level == "HOT":
            specs.setdefault(replica.model, []).append((replica.spec_hash, replica.variant))
    return specs


def _check_document(plan: Plan, models: dict[str, ResolvedModel]) -> None:
    document = plan.model_dump(mode="json", by_alias=True)
    assert plan.plan_id == sha256_hex(canonical_json({key: document[key] for key in document if key != "planId"}))
    assert Plan.model_validate_json(plan.model_dump_json(by_alias=True)) == plan
    assert set(plan.specs) == {action.spec_hash for action in (*plan.actions, *plan.after_pilot)}
    assert set(plan.observed) == {action.model for action in plan.actions}
    assert [row.key for row in plan.models] == list(models)
    assert all(row.reason for row in plan.models)
    certificate = plan.certificate
    assert certificate.placed == len(plan.actions) + len(plan.after_pilot)
    assert certificate.placed <= certificate.upper_bound <= certificate.wanted
    assert len(plan.after_pilot) == certificate.after_pilot == plan.summary.after_pilot
    waiting = Counter(action.model for action in plan.after_pilot)
    assert waiting == Counter({row.key: row.after_pilot for row in plan.models if row.after_pilot})
    assert (certificate.status == "optimal") == (certificate.placed == certificate.upper_bound)


def _of_variant(one: ResolvedModel, model: ResolvedModel, live: list[Spec]) -> list[Spec]:
    """The live replicas of a variant: by their hash, or by the name in their mark if the hash is of none."""
    hashes = {other.spec_hash for other in model.variants}
    return [spec for spec in live if spec[0] == one.spec_hash or (spec[0] not in hashes and spec[1] == one.variant)]


def _check_variants(plan: Plan, model: ResolvedModel, live: list[Spec], old: int) -> int:
    """Check the new replicas of each variant against its limits; returns how many replicas lack, whichever they are."""
    actions = [action for action in plan.actions if action.model == model.key]
    kept = sum(min(one.least, len(_of_variant(one, model, live))) for one in model.variants)
    floor = max(model.replicas, kept)
    target = max(0, min(floor - (len(live) - old), floor + model.surge - len(live)))
    lacking = beyond = 0
    for one, row in zip(model.variants, next(row for row in plan.models if row.key == model.key).variants, strict=True):
        mine, new = _of_variant(one, model, live), sum(action.variant == one.variant for action in actions)
        have, old_ones = len(mine), sum(spec[0] not in (None, one.spec_hash) for spec in mine)
        assert (row.name, row.live, row.create, row.least, row.most) == (
            one.variant, have, new, one.least, one.most)
        assert new <= max(target, one.least - have, 0), "a variant has more than target and minimum ask for"
        assert one.most is None or new <= max(0, one.most - have + min(model.surge, old_ones))
        lacking += max(0, one.least - have - new)
        beyond += new > max(0, one.least - have)
    assert not beyond or len(actions) <= target, "a minimum without room is no reason for more of another variant"
    return max(target - len(actions), lacking)


def _check_counts(plan: Plan, fleet: ResolvedFleet, live: dict[str, list[Spec]]) -> None:
    blocked = {one.model: one.replicas for one in plan.blocked}
    codes = {one.model: one.code for one in plan.blocked}
    holds = {hold.model: (hold.wanted, hold.live, hold.surplus) for hold in plan.holds}
    assert len(blocked) == len(plan.blocked)
    for model, row in zip(fleet.models, plan.models, strict=True):
        have = len(live.get(model.key, ()))
        old = sum(spec is not None and not model.has_spec(spec) for spec, _ in live.get(model.key, ()))
        created = sum(action.model == model.key for action in plan.actions)
        left_out = model.key in plan.options.excludes or \
            (bool(plan.options.targets) and model.key not in plan.options.targets) or \
            (plan.options.selector is not None
             and not parse_label_selector(plan.options.selector).matches(model.labels))
        missing = 0 if left_out else max(0, min(model.replicas - (have - old), model.replicas + model.surge - have))
        if model.variants:
            short = _check_variants(plan, model, live.get(model.key, []), old)
            assert blocked.get(model.key, 0) == (0 if left_out else short), f"{model.key}: {short} missing"
            assert all(have + created <= action.wanted for action in plan.actions if action.model == model.key)
            asked = max(model.replicas, sum(one.least for one in model.variants))
            kept = sum(min(one.least, len(_of_variant(one, model, live.get(model.key, [])))) for one in model.variants)
            surplus = max(0, have - max(model.replicas, kept))
            assert holds.get(model.key) == ((have - surplus, have, surplus) if surplus else None)
            assert (row.wanted, row.live, row.create, row.blocked, row.surplus) == \
                (asked, have, created, blocked.get(model.key, 0), surplus)
            continue
        assert created + blocked.get(model.key, 0) == missing, f"{model.key}: {missing} missing"
        assert {action.wanted for action in plan.actions if action.model == model.key} <= \
            {model.replicas + min(model.surge, old)}, "the agent creates no more than this"
        assert have + created <= max(have, model.replicas + min(model.surge, old))
        updating = model.surge > 0 and old > 0 and have + created >= model.replicas
        assert blocked.get(model.key, 0) == 0 or updating == (codes[model.key] == "UPDATE_NEEDS_ROOM") \
            or codes[model.key] in ("CLAIMED_BY_FLEET", "PAUSED", "QUOTA")
        surplus = max(0, have - model.replicas)
        assert holds.get(model.key) == ((model.replicas, have, surplus) if surplus else None)
        assert (row.wanted, row.live, row.create, row.blocked, row.surplus) == \
            (model.replicas, have, created, blocked.get(model.key, 0), surplus)
    total = plan.summary
    assert total.create == len(plan.actions)
    assert total.blocked == sum(blocked.values())
    assert total.hold == sum(hold.surplus for hold in plan.holds)
    assert (total.drift, total.lost, total.unmanaged) == (len(plan.drift), len(plan.lost), len(plan.unmanaged))
    assert plan.exit_code == (3 if plan.blocked else 2 if plan.actions else 0)


def _check_ids(plan: Plan, inventory: Inventory, fleet: str, adopt: str | None) -> None:
    known = [replica for replica in inventory.replicas if replica.state in LIVE and replica.replica_id is not None]
    for key in {action.model for action in plan.actions}:
        ids = [action.replica_id for action in plan.actions if action.model == key and action.op == "create"]
        promoted = [action.replica_id for action in plan.actions if action.model == key and action.op == "promote"]
        taken = {replica.replica_id for replica in known if replica.model == key}
        warm = {replica.replica_id for replica in known if replica.model == key and replica.level == "WARM"
                and replica.fleet is not None and replica.fleet in (fleet, adopt)}
        ours = [replica.replica_id for replica in known
                if replica.model == key and replica.fleet is not None and replica.fleet in (fleet, adopt)]
        assert ids == sorted(set(ids))
        assert not taken.intersection(ids)
        first = max(ours, default=-1) + 1
        assert ids == [number for number in range(first, max(ids, default=0) + 1) if number not in taken][:len(ids)]
        assert len(set(promoted)) == len(promoted)
        assert warm.issuperset(promoted)


def _check_geometry(action: Action, model: ResolvedModel, nodes: dict[str, SimNode]) -> None:
    wanted = []
    for group in model.workers:
        ordered = [m for m in group.members if m.role != "Worker"] + [m for m in group.members if m.role == "Worker"]
        ranks = [member for member in ordered for _ in range(member.count or 1)]
        wanted += [(group.name, copy, member.role, rank, member)
                   for copy in range(group.copies) for rank, member in enumerate(ranks)]
    assert [(m.group, m.copy_index, m.role, m.rank) for m in action.members] == [part[:4] for part in wanted]
    gangs: dict[tuple[str, int], list[str]] = {}
    for member, (_, _, _, _, spec) in zip(action.members, wanted, strict=True):
        node = nodes[member.node_id]
        assert node.node.name == member.node
        assert selects(spec.node_selector, {"ray.io/node-id": node.node.id, **node.node.labels})
        want = spec.resources
        assert (member.vram, member.cpus, member.memory) == (want.vram, want.cpus, want.memory)
        shares = {node.share_for(want.gpus, want.vram, card) for card in node.cards}
        assert member.gpus in (shares if want.gpus or want.vram else {0})
        gangs.setdefault((member.group, member.copy_index), []).append(member.node_id)
    for placed_on in gangs.values():
        if len(placed_on) == 1:
            continue
        assert max(placed_on.count(node) for node in placed_on) <= model.placement.ranks_per_node
        if isinstance(model.placement.same_label, str):
            _check_one_value(placed_on, model.placement.same_label, nodes)
    whole = model.placement.same_label
    if isinstance(whole, SameLabel) and len(action.members) > 1:
        _check_one_value([member.node_id for member in action.members], whole.label, nodes)


def _check_one_value(placed_on: list[str], label: str, nodes: dict[str, SimNode]) -> None:
    values = {nodes[node].node.labels.get(label) for node in placed_on}
    assert len(values) == 1
    assert None not in values


def _check_slots(
    action: Action, model: ResolvedModel, nodes: dict[str, SimNode], taken: dict[tuple[str, str], set[int]]
) -> None:
    wants_cards = any(m.resources.gpus or m.resources.vram for group in model.workers for m in group.members)
    for node_id in {member.node_id for member in action.members}:
        node = nodes[node_id]
        node.slots[action.model] = node.slots.get(action.model, 0) + 1
        cap = node.cap if node.cap is not None else None if wants_cards else 1
        assert cap is None or node.slots[action.model] <= cap
        (slot,) = {member.slot for member in action.members if member.node_id == node_id}
        held = taken.setdefault((node_id, action.model), set())
        assert slot not in held
        held.add(slot)


def _check_explained(
    plan: Plan, models: dict[str, ResolvedModel], nodes: dict[str, SimNode], crowds: Crowds
) -> None:
    for blocked in plan.blocked:
        assert blocked.code in CODES
        assert blocked.message
        assert blocked.replicas > 0
        assert all(len(reason.examples) <= 5 and reason.code in CODES for reason in blocked.reasons)
        if blocked.code in ("CLAIMED_BY_FLEET", "PAUSED", "QUOTA", "COOLING_DOWN", "IMAGE_MISSING", "VARIANT_FULL"):
            continue
        assert blocked.reasons, f"{blocked.model} is blocked without a reason"
        cooling = {name for reason in blocked.reasons if reason.code in ("NODE_COOLING", "CARD_COOLING")
                   for name in reason.examples}
        model = models[blocked.model]
        explained = {reason.variant for reason in blocked.reasons}
        for one in model.alternatives:
            if len(model.variants) <= 1 or one.variant in explained:
                _check_truly_full(one, {key: node for key, node in nodes.items()
                                        if node.node.name not in cooling}, crowds)


def _check_truly_full(model: ResolvedModel, nodes: dict[str, SimNode], crowds: Crowds) -> None:
    """A model with one Standalone member is blocked only if it fits nowhere beside the plan."""
    members = [member for group in model.workers for member in group.members]
    if len(members) != 1 or model.workers[0].copies != 1 or (members[0].count or 1) != 1:
        return
    want, spread = members[0].resources, spread_of(model)
    for node in nodes.values():
        if spread is not None and spread[1] is not None:
            value = value_on(node, spread[0])
            if value is None or crowds[model.key, value] >= spread[1]:
                continue
        cap = node.cap if node.cap is not None else None if want.gpus or want.vram else 1
        if not node.takes_new or not node.exact or (cap is not None and node.slots.get(model.key, 0) >= cap):
            continue
        if selects(members[0].node_selector, {"ray.io/node-id": node.node.id, **node.node.labels}):
            fits = node.could_take(want.gpus, want.vram, want.cpus, want.memory)
            assert not fits, f"{model.key} is blocked but fits on {node.node.name}"


__all__ = ["WHOLE", "check_plan"]
