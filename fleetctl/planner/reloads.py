"""Updates in place: which outdated replicas of a plan reload their weights, and whether that still holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fleetctl.documents.canonical import in_order, short_hash
from fleetctl.documents.inventory import (
    RELOAD_ENDED,
    UNKNOWN_SPEC,
    Failure,
    Inventory,
    Replica,
    dead_node_ids,
    is_live,
    serves,
)
from fleetctl.documents.plan import Plan
from fleetctl.documents.quantity import some
from fleetctl.fleetfile.resolved import ResolvedFleet, ResolvedModel
from fleetctl.planner.actions import action_of, lifecycle_of, unclaimed
from fleetctl.planner.cooling import Limits, find_limits
from fleetctl.planner.live import ModelState, is_outdated, variant_of
from fleetctl.planner.placement.demand import Demand, Option
from fleetctl.planner.policy import protecting

MORE_CHANGED = "more than index or view of its weights has changed (fleetctl replace)"
OTHER_VARIANT = "the file does not have its variant, and only its weights may change in place (fleetctl replace)"
NOT_READY = "not ready"


def find_reloads(
    fleet: ResolvedFleet, demands: Sequence[Demand], states: Mapping[str, ModelState], inventory: Inventory, *,
    ignore_cooldown: bool,
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the reloads of those demands' models that are updated in place, as documents, and a summary by model.

    Replicas with an unknown spec come first, since they may be reloading already.
    """
    documents, summaries = list[dict[str, Any]](), dict[str, str]()
    places = list(dict.fromkeys(demand.place for demand in demands if fleet.models[demand.place].reload))
    if not places:
        return documents, summaries
    names = {node.id: node.name for node in inventory.nodes}
    failures = [] if ignore_cooldown else inventory.failures
    limits = Limits() if ignore_cooldown else find_limits(fleet, inventory, demands, states, reloads=True)
    for place in places:
        model = fleet.models[place]
        state = states[model.key]
        outdated = [replica for replica in state.live if is_outdated(replica, model)]
        outdated.sort(key=lambda replica: replica.spec_hash != UNKNOWN_SPEC)
        by_objection = dict[str, list[str]]()
        ended = [_ended(one, failures) for one in model.alternatives]
        left = [limits.most.get((place, number), len(outdated)) for number in range(len(model.alternatives))]
        for replica in outdated:
            name, variant = f"{model.key}/{replica.replica_id}", variant_of(model, replica)
            objection = (state.pause and state.paused) or (
                OTHER_VARIANT if variant is None else _objection(fleet, model.alternatives[variant], replica)
                or ended[variant] or _cooling(limits, (place, variant), replica, left[variant]))
            by_objection.setdefault(objection, []).append(name)
            if variant is not None and not objection:
                left[variant] -= 1
                documents.append(_document(model.alternatives[variant], replica, names))
        summaries[model.key] = "; ".join(
            f"{some(which)} not in place: {text}" if text else f"reload {some(which)} in place, one at a time"
            for text, which in sorted(by_objection.items()))
    return documents, summaries


def _objection(fleet: ResolvedFleet, model: ResolvedModel, replica: Replica) -> str:
    """Return why a replica does not reload; empty = it may."""
    seats = sum((member.count or 1) * group.copies for group in model.workers for member in group.members)
    if model.engine_hash is None or replica.engine_hash != model.engine_hash or len(replica.members) != seats:
        return MORE_CHANGED
    if protecting(fleet.policy.protected_models, model.key):
        return "the model is protected (spec.policy.protectedModels)"
    if replica.in_a_row and replica.restart_max is not None and replica.in_a_row >= replica.restart_max:
        return "no restart is left, should its engine end during the reload"
    return "" if serves(replica) and replica.actor_id else NOT_READY


def _ended(model: ResolvedModel, failures: Sequence[Failure]) -> str:
    """Return why no replica of a model reloads this spec automatically: it has ended an engine before."""
    ended = next((failure for failure in reversed(failures) if failure.code == RELOAD_ENDED
                  and failure.model == model.key and model.has_spec(failure.spec_hash)), None)
    return "" if ended is None else (
        f"the engine of {ended.model}/{ended.replica_id} ended when it was asked to reload this, {ended.at}: not tried "
        "again until the spec changes, or with --ignore-cooldown")


def _cooling(limits: Limits, of: Option, replica: Replica, left: int) -> str:
    """Return why the breaker leaves a replica alone: its spec cools, everywhere or on one of its nodes."""
    if left <= 0:
        return limits.why[of]
    avoided, tried = limits.avoided.get(of, {}), limits.tried.get(of, ())
    return next((avoided[node] for member in replica.members
                 if (node := member.node_id or "") in avoided and node not in tried), "")


def _document(model: ResolvedModel, replica: Replica, nodes: Mapping[str, str]) -> dict[str, Any]:
    requests = [in_order(request.model_dump(exclude_none=True)) for request in model.reload]
    members = [unclaimed(member.group or "", member.copy_index, member.rank, member.role, member.node_id or "",
                         nodes.get(member.node_id or "", "")) for member in replica.members]
    return action_of(model, "reload", members, lifecycle=lifecycle_of(model), replica_id=replica.replica_id,
                     reload={"actorId": replica.actor_id, "requests": requests, "runs": replica.spec_hash})


def moved_reloads(plan: Plan, inventory: Inventory) -> Iterator[str]:
    """Yield a sentence for each replica that is to reload and runs another spec now, or is gone."""
    if not (reloads := plan.reloads):
        return
    dead = dead_node_ids(inventory)
    now = {replica.actor_id: replica.spec_hash for replica in inventory.replicas if is_live(replica, dead)}
    for action in reloads:
        if (then := action.reload) and now.get(then.actor_id) != then.runs:
            now_text = f"runs spec {short_hash(str(now[then.actor_id]))} now" if then.actor_id in now else "is gone now"
            yield f"{action.id}: ran spec {short_hash(then.runs)} when planned, {now_text}"
