"""make_plan: turns a fleet and an inventory into the plan. Pure: equal input gives equal bytes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cache, partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from fleetctl.collector import collector_paused
from fleetctl.documents.base import clock_text
from fleetctl.documents.canonical import canonical_json, canonical_json_of_sorted, plan_id
from fleetctl.documents.inventory import LIVE_STATES, Inventory, Node, Replica, was_restarted_recently
from fleetctl.documents.plan import (
    Blocked,
    Certificate,
    Drift,
    FileWarning,
    Growth,
    Hold,
    ModelRow,
    Note,
    Plan,
    PlanFlags,
    PlanFleet,
    PlanHistory,
    PlanInventory,
    PlanPrice,
    Summary,
    VariantRow,
)
from fleetctl.documents.position import Position
from fleetctl.documents.quantity import grouped
from fleetctl.fleetfile.resolved import ResolvedFleet, ResolvedModel, shape_as_set, spec_document
from fleetctl.planner.actions import ACTIONS, actions_for
from fleetctl.planner.cooling import Limits, Tries, find_limits, try_nodes
from fleetctl.planner.drift import find_drift
from fleetctl.planner.live import (
    NONE_WHILE_PAUSED,
    NOT_TWICE,
    LiveState,
    ModelState,
    sort_out,
)
from fleetctl.planner.options import PlanFacts, PlanOptions, require_complete, with_keys
from fleetctl.planner.placement.claims import ANY_NODE, Claim, GroupShape, MemberShape, ReplicaShape
from fleetctl.planner.placement.demand import Demand, Expected, Option, Placed, count_missing
from fleetctl.planner.placement.ledger.ledger import Ledger, open_ledger
from fleetctl.planner.placement.ledger.replica import Placer
from fleetctl.planner.placement.pack import pack
from fleetctl.planner.placement.policies import SLOTS_LABEL, card_notes, slot_notes
from fleetctl.planner.policy import Doing, detailed_exit_code, policy_findings, refusing
from fleetctl.planner.quotas import Quotas, WithinQuotas, pack_within
from fleetctl.planner.variants import (
    NONE_BEYOND_MAX,
    VARIANT_FULL,
    Shapes,
    counted_shapes,
    demands_of,
    expected_of,
    kept_for_minimum,
    left_of,
    shapes_of,
    still_missing,
    variant_rows,
    variants_text,
    would_help,
)
from fleetctl.problem import Problem

if TYPE_CHECKING:
    from fleetctl.planner.cold import ColdFloor


@dataclass(slots=True)
class _Draft:
    """A plan in the making: each step of `make_plan` adds what it decides."""

    fleet: ResolvedFleet
    inventory: Inventory
    options: PlanOptions
    shapes: Shapes
    state: LiveState
    limits: Limits
    quotas: Quotas
    wanted: Sequence[Demand]
    """What is missing of the models that the flags choose."""
    demands: Sequence[Demand]
    """The same, without the nodes that the breaker keeps a model off."""
    allowed: Sequence[Demand]
    """What of it the breaker, pauses and other fleets allow."""
    placer: Placer
    before: Ledger
    """What was free before this plan."""
    packed: WithinQuotas = field(init=False)
    no_room: Set[int] = frozenset()
    """The places of the models that found no room."""
    tries: Tries = field(default_factory=Tries)
    placed: Sequence[tuple[Placed, int]] = ()
    """New replicas in order of creation, each with its id."""
    later: int = 0
    """How many of these, the last ones, wait for a pilot."""
    bound: int = 0
    """The bound on new replicas."""
    certificate: Certificate = field(init=False)
    blocked: Sequence[Blocked] = ()
    growth: Sequence[Growth] = ()
    waiting: Sequence[Placed] = ()
    """Replicas that would run on new nodes."""

    @property
    def ledger(self) -> Ledger:
        """What this plan leaves free."""
        return self.placer.ledger

    @property
    def filled(self) -> Counter[int]:
        """How many missing replicas are missing no more, by the place of their model in the file: the new ones.

        With variants, a new one may take the place of one that their minimums would then ask for.
        """
        found = Counter(replica.demand.place for replica, _ in self.placed)
        for place, demands in grouped((one.place, one) for one in self.wanted if one.target is not None).items():
            model = self.fleet.models[place]
            state = self.state.models[model.key]
            found[place] = demands[0].missing - still_missing(demands, model, state, self.created_of_each)
        return found

    @property
    def created_of_each(self) -> Counter[Option]:
        """The same of each variant."""
        return Counter(replica.demand.option for replica, _ in self.placed)


def make_plan(fleet: ResolvedFleet, inventory: Inventory, options: PlanOptions, facts: PlanFacts) -> Plan:
    """Compare a fleet with what runs: what to create where, what is held, what does not fit and why.

    Raises InventoryError if the inventory is not complete, UsageError if an option names an unknown model.
    """
    require_complete(inventory)
    if options.targets or options.excludes or options.selector:
        options = with_keys(options, fleet.labels)
    if inventory.starts or any(model.engine_hash for model in fleet.models):
        from fleetctl.planner.weights import with_startup_times  # a file has neither starts nor, mostly, weights

        fleet = with_startup_times(fleet, inventory)
    with collector_paused(lasting=True):
        draft = _compared(fleet, inventory, options)
        _place(draft)
        _explain(draft)
        if fleet.cluster.grow:
            _grow(draft)
        return _write(draft, facts)


def _compared(fleet: ResolvedFleet, inventory: Inventory, options: PlanOptions) -> _Draft:
    """Compare the fleet with what runs: what is missing, what of it is allowed, and what is free."""
    shapes = shapes_of(fleet, inventory)
    state = sort_out(inventory, fleet.name, shapes, options.adopt_from)
    wanted = [demand for place, model in enumerate(fleet.models) if options.left_out(model.key, model.labels) is None
              for demand in demands_of(model, state.models[model.key], shapes[model.key], place)]
    limits = Limits() if options.ignore_cooldown else find_limits(fleet, inventory, wanted, state.models)
    if options.held_back:
        limits = limits.holding_back(
            one for one in wanted if (one.shape.key, one.model_in(fleet.models).variant) in options.held_back)
    demands = [limits.narrowed(demand) for demand in wanted] if limits.avoided else wanted
    allowed = limits.allowed(demand for demand in demands if not state.models[demand.shape.key].barred)
    ledger = open_ledger(inventory, fleet.policies, state, counted_shapes(shapes), limits.closed, limits.cards)
    return _Draft(fleet, inventory, options, shapes, state, limits, Quotas(fleet, state), wanted, demands, allowed,
                  Placer(ledger), ledger.copied())


def _place(draft: _Draft) -> None:
    """Find the places of new replicas, within the quotas, and their ids."""
    limits, placer, quotas, start = draft.limits, draft.placer, draft.quotas, draft.ledger.mark()
    expected = expect(draft.fleet, draft.inventory, draft.state, draft.shapes)
    tries = limits.tries if limits.tried else ()
    draft.packed = packed = pack_within(
        quotas, draft.allowed, lambda asked: pack(asked, placer, expected=expected, on_ledger=bool(tries)),
        lambda: placer.ledger.undo(start))
    if tries:  # for which the packing is on the ledger
        without_room = [demand for demand in limits.allowed(draft.wanted) if demand.place in packed.no_room]
        draft.tries = try_nodes(limits, without_room, packed.packing.placed, placer,
                                lambda placed: quotas.keeps(placed).total() == len(placed))
    placed = [*packed.packing.placed, *draft.tries.placed]
    states = [draft.state.models[model.key] for model in draft.fleet.models]
    with_ids: Sequence[tuple[Placed, int | None]] = [(replica, None) for replica in placed]
    if any(states[replica.demand.place].not_hot for replica in placed):
        from fleetctl.planner.promote import promoted  # most fleets have no WARM replicas

        with_ids = promoted(placed, draft.fleet.models, states, placer.ledger, start)
    if pilot := draft.fleet.policy.pilot:
        from fleetctl.planner.pilot import pilots_first  # for fleets with pilots

        with_ids, draft.later = pilots_first(with_ids, pilot, draft.fleet.models, draft.state.models, draft.inventory)
    counts = Counter(replica.demand.place for replica, replica_id in with_ids if replica_id is None)
    ids = {place: iter(states[place].new_ids(count)) for place, count in counts.items()}
    draft.placed = [(replica, next(ids[replica.demand.place]) if replica_id is None else replica_id)
                    for replica, replica_id in with_ids]
    draft.bound = packed.packing.bound + len(tries)
    draft.no_room = packed.no_room
    if any(model.variants for model in draft.fleet.models):
        draft.no_room |= _variants_without_room(draft)


def _variants_without_room(draft: _Draft) -> set[int]:
    """Return the places of the models of which all that was asked for is placed, but too few of one variant."""
    several = {key for key, shapes in draft.shapes.items() if len(shapes) > 1}
    created, totals = draft.created_of_each, cache(lambda: draft.quotas.after(replica for replica, _ in draft.placed))
    found = set[int]()
    for place, demands in grouped((one.place, one) for one in draft.allowed if one.shape.key in several).items():
        model, state = draft.fleet.models[place], draft.state.models[demands[0].shape.key]
        if any(created[one.option] < one.at_most and totals().leave(one)
               for one in would_help(demands, model, state, created)):
            found.add(place)
    return found


def _explain(draft: _Draft) -> None:
    """Say what is proven of the places, what is blocked and why, and what would help."""
    fleet, inventory, packed, state = draft.fleet, draft.inventory, draft.packed, draft.state
    placed, inquiry, repacked = [replica for replica, _ in draft.placed], None, None
    if draft.no_room:  # imported only now: a third of the time of a small plan
        from fleetctl.planner.placement.exact.exact import repacked_bound
        from fleetctl.planner.placement.occupants import look_around, new_occupants
        from fleetctl.planner.placement.reasons.remedies import Additions, Inquiry

        occupants = look_around(inventory.nodes, draft.ledger.nodes, state.running,
                                {model.key: model for model in fleet.models})
        occupants.replicas += new_occupants(draft.placed, fleet.models)
        repacked = repacked_bound(packed.asked, packed.packing.placed, draft.bound, occupants, draft.before)
        inquiry = Inquiry(draft.placer, occupants, fleet.policies, draft.before, placed)
    missing = {demand.place: demand.missing for demand in draft.wanted}
    if draft.no_room or sum(missing.values()) > len(placed) or any(demand.least for demand in draft.wanted):
        from fleetctl.planner.blocked import Unplaced  # most plans place everything

        draft.blocked = Unplaced(
            fleet, state, draft.wanted, [*packed.packing.placed, *draft.tries.placed], draft.limits, draft.tries,
            draft.quotas, draft.no_room, inquiry).entries()
    limited = count_missing(packed.asked) < count_missing(draft.allowed)
    paused = any(demand.missing and state.models[demand.shape.key].pause for demand in draft.demands)
    waiting = "models that cool down wait" if draft.limits.most else NONE_WHILE_PAUSED if paused else (
        NONE_BEYOND_MAX if any(row.code == VARIANT_FULL for row in draft.blocked) else "")
    method = packed.packing.method or ("the quotas allow no more" if limited else waiting)
    wanted = len(placed) + sum(row.replicas for row in draft.blocked)
    draft.certificate = certify(wanted, len(placed), draft.bound, method, repacked)
    if draft.later:
        draft.certificate = draft.certificate.model_copy(update={"after_pilot": draft.later})
    if any(row.would_fit for row in draft.blocked):
        def filled_with(nodes: Sequence[Node]) -> Counter[int]:
            grown = _compared(fleet, inventory.model_copy(update={"nodes": [*inventory.nodes, *nodes]}), draft.options)
            _place(grown)
            return grown.filled

        additions = Additions(inventory.nodes, count_missing(draft.demands), draft.filled, filled_with)
        draft.blocked = additions.tried(draft.blocked, {
            model.key: (place, model.priority) for place, model in enumerate(fleet.models)})


def _grow(draft: _Draft) -> None:
    """Find the nodes on which the autoscaler could make room for what found none."""
    from fleetctl.planner.growth import Growing, StartNow

    placed, created = [replica for replica, _ in draft.placed], draft.created_of_each
    without_room = grouped((demand.place, demand) for demand in draft.allowed if demand.place in draft.no_room)
    useful = list[Demand]()
    for place, demands in without_room.items():
        model = draft.fleet.models[place]
        useful += would_help(demands, model, draft.state.models[model.key], created) if model.variants else demands
    short = left_of(useful, created)
    growing = Growing(draft.fleet.cluster.grow, draft.fleet.policies, draft.inventory, draft.ledger)
    beside = draft.quotas.beside((replica.demand.shape.key, replica.gpus) for replica in placed)
    first: StartNow | None = None
    if pilot := draft.fleet.policy.pilot:
        from fleetctl.planner.pilot import may_start_now  # for fleets with pilots

        first = partial(may_start_now, placed=placed, later=draft.later, pilot=pilot, models=draft.fleet.models,
                        states=draft.state.models, inventory=draft.inventory)
    draft.growth, draft.blocked, draft.waiting = growing.find(
        short, beside, draft.state, placed, draft.blocked, first)
    draft.certificate = draft.certificate.model_copy(update={"on_new_nodes": len(draft.waiting)})


def _upkeep(
    draft: _Draft, chosen: Sequence[ResolvedModel]
) -> tuple[list[dict[str, Any]], Mapping[str, str], ColdFloor | None]:
    """Return what is done beside new replicas: reloads in place with a summary by model, and fetches onto disks.

    Most fleets want neither, so this imports what finds them.
    """
    fleet, states, options = draft.fleet, draft.state.models, draft.options
    reloads, in_place, floor = list[dict[str, Any]](), dict[str, str](), None
    if any(model.reload for model in fleet.models):
        from fleetctl.planner.reloads import find_reloads

        reloads, in_place = find_reloads(fleet, draft.demands, states, draft.inventory,
                                         ignore_cooldown=options.ignore_cooldown)
    if kept := [model for model in chosen if model.cold is not None and not states[model.key].pause]:
        from fleetctl.planner.cold import cold_floor

        cooldown = fleet.policy.cooldown
        retry_after_s = cooldown.first if cooldown.failures and not options.ignore_cooldown else 0
        floor = cold_floor(kept, draft.inventory, draft.ledger.nodes, retry_after_s)
    return reloads, in_place, floor


def _rows(
    draft: _Draft, reloads: Sequence[Mapping[str, Any]], in_place: Mapping[str, str], ready_in: Mapping[str, str]
) -> list[ModelRow]:
    """Return the row of each model, with the nodes that the breaker keeps its new replicas off."""
    limits, ledger, placed = draft.limits, draft.ledger, [replica for replica, _ in draft.placed]
    reloaded = Counter(reload["model"] for reload in reloads)
    later = Counter(replica.demand.option for replica, _ in draft.placed[len(placed) - draft.later:])
    after_pilot = Counter(place for place, _ in later.elements())
    taken = grouped((replica.demand.place, ledger.nodes[member.node].id) for replica in placed
                    for member in replica.assignments) if limits.avoided or limits.closed else {}
    blocked, of_each = {row.model: row for row in draft.blocked}, Counter(one.demand.option for one in placed)
    created = Counter(place for place, _ in of_each.elements())

    def kept_off(model: ResolvedModel, place: int) -> str:
        texts = [limits.kept_off(one, (place, number), draft.inventory, taken[place])
                 for number, one in enumerate(model.alternatives)]
        names = [f"{one.variant}: " if len(model.variants) > 1 else "" for one in model.alternatives]
        return "; ".join(f"{name}{text}" for name, text in zip(names, texts, strict=True) if text)

    return [model_row(model, draft.state.models[model.key], create=created[place] - after_pilot[place],
                      after_pilot=after_pilot[place], reload=reloaded[model.key],
                      in_place=in_place.get(model.key, ""), ready_in=ready_in.get(model.key, ""),
                      blocked=blocked.get(model.key), left_out=draft.options.left_out(model.key, model.labels),
                      avoided=kept_off(model, place) if place in taken else "",
                      variants=variant_rows(model, draft.state.models[model.key], place, of_each, later)
                      if model.variants else ())
            for place, model in enumerate(draft.fleet.models)]


def _memory_notes(draft: _Draft) -> Iterator[Note]:
    from fleetctl.planner.placement.card_use import SeenCards  # for models that are described
    from fleetctl.planner.placement.memory import GroupOf, memory_notes

    placed = defaultdict[GroupOf, set[str]](set)
    for new, _ in draft.placed:
        variant = new.demand.model_in(draft.fleet.models).variant
        for assigned in new.assignments:
            if assigned.seat.claim.wants_card:
                placed[new.demand.shape.key, variant, assigned.seat.group].add(draft.ledger.nodes[assigned.node].id)
    return memory_notes(
        draft.fleet.models, placed, draft.ledger.nodes, SeenCards(draft.inventory, draft.fleet.policies))


def _write(draft: _Draft, facts: PlanFacts) -> Plan:
    fleet, inventory, options, state = draft.fleet, draft.inventory, draft.options, draft.state
    starts = actions_for(draft.placed, fleet.models, state.models, draft.ledger)
    chosen = [model for model in fleet.models if options.left_out(model.key, model.labels) is None]
    reloads, in_place, floor = _upkeep(draft, chosen)
    if any(model.engine_hash for model in fleet.models):
        from fleetctl.planner.sources import add_weights  # most fleets have no weights

        add_weights([*starts, *reloads], fleet.models, draft.shapes, inventory, draft.ledger.nodes)
    ready_in: Mapping[str, str] = {}
    if starts and inventory.starts:
        from fleetctl.planner.time_to_ready import add_times  # only what starts takes time

        ready_in = add_times(starts, fleet.models, inventory)
    starts, later = starts[:len(starts) - draft.later], starts[len(starts) - draft.later:]
    actions = [*starts, *reloads, *(floor.prefetches if floor else ())]
    rows = _rows(draft, reloads, in_place, ready_in)
    rows = floor.shown_in(rows) if floor else rows
    running = sum(len(model.live) for model in state.models.values())
    drift = find_drift(fleet.models, draft.shapes, state.models, draft.ledger.nodes,
                       {reload["reload"]["actorId"] for reload in reloads}) if running else []
    holds = [Hold(model=row.key, wanted=row.live - row.surplus, live=row.live, surplus=row.surplus)
             for row in rows if row.surplus]
    acted_on = {(action["model"], action["specHash"]) for action in (*actions, *later)}
    waiting = Counter(replica.demand.shape.key for replica in draft.waiting)
    policy = policy_findings(fleet, Doing(
        created=Counter(action["model"] for action in (*starts, *later)) + waiting, waiting=waiting.total(),
        new_gpus=sum(member["gpus"] for action in (*starts, *later) for member in action["members"])
        + sum(replica.gpus for replica in draft.waiting), live=running),
        force=options.force)
    plan = Plan(
        tool_version=facts.tool_version, expires_at=facts.expires_at,
        fleet=PlanFleet(name=fleet.name, namespace=facts.namespace, files=list(fleet.files), git=facts.git,
                        history=PlanHistory(**fleet.history.model_dump()) if fleet.history else None),
        inventory=PlanInventory(
            observed_at=inventory.observed_at, source=inventory.source,
            address=facts.address or inventory.cluster.address, session_id=inventory.cluster.session_id),
        price=_price(draft) if fleet.has_prices else None,
        summary=_summary(draft, rows, holds, drift).model_copy(update={
            "promote": sum(action["op"] == "promote" for action in starts),
            "prefetch": sum(floor.onto.values()) if floor else 0}),
        certificate=draft.certificate, models=rows,
        specs={model.spec_hash: {**spec_document(model), "asSet": shape_as_set(model.workers, model.placement)}
               for one in fleet.models for model in one.alternatives if (model.key, model.spec_hash) in acted_on},
        actions=ACTIONS.validate_python(actions), after_pilot=ACTIONS.validate_python(later) if later else [],
        holds=holds, blocked=list(draft.blocked), growth=list(draft.growth), drift=drift,
        unmanaged=state.unmanaged, lost=state.lost, policy=policy,
        notes=[*(card_notes(inventory.nodes) if any(node.unreported_cards for node in inventory.nodes) else ()),
               *(slot_notes(inventory.nodes, fleet.policies) if any(
                   SLOTS_LABEL in node.labels for node in inventory.nodes) else ()),
               *(_memory_notes(draft) if any(model.description for model in fleet.models) else ())],
        file_warnings=file_warnings(fleet.warnings, {model.key for model in chosen}) if fleet.warnings else [],
        options=PlanFlags(
            files=list(options.files), targets=sorted(set(options.targets)), excludes=sorted(set(options.excludes)),
            selector=options.selector.text if options.selector else None, adopt_from=options.adopt_from,
            force=options.force, ignore_cooldown=options.ignore_cooldown),
        observed={key: {"live": len(state.models[key].live), "highestId": state.models[key].highest_id}
                  for key in sorted({action["model"] for action in starts})},
        exit_code=detailed_exit_code(
            actions=len(actions) + len(later), blocked=len(draft.blocked), refused=len(refusing(policy))))
    others = plan.model_dump(mode="json", by_alias=True, exclude={"actions"})
    canonical = canonical_json if reloads else canonical_json_of_sorted  # a request may have fractions in lists
    return plan.model_copy(update={"plan_id": plan_id(others, {"actions": canonical(actions)})})


def file_warnings(problems: Iterable[Problem], planned: Set[str]) -> list[FileWarning]:
    """Return the warnings about the planned models, by key, and about no model alone, in file order."""
    return [FileWarning(
        code=problem.code, message=problem.message, model=problem.model or None, allowed=problem.allowed,
        suggestion=problem.suggestion, source=Position(file=problem.file, line=problem.line, column=problem.column))
            for problem in problems if not problem.model or problem.model in planned]


def _summary(draft: _Draft, rows: Sequence[ModelRow], holds: Sequence[Hold], drift: Sequence[Drift]) -> Summary:
    return Summary(
        wanted=sum(row.wanted for row in rows), live=sum(row.live for row in rows),
        create=len(draft.placed) - draft.later, after_pilot=draft.later, hold=sum(hold.surplus for hold in holds),
        blocked=sum(row.replicas for row in draft.blocked), unmanaged=len(draft.state.unmanaged),
        drift=len(drift), lost=len(draft.state.lost),
        starting=sum(row.starting - row.restarting for row in rows), restarting=sum(row.restarting for row in rows),
        not_ready=sum(row.not_ready for row in rows), outdated=sum(row.outdated for row in rows),
        reload=sum(row.reload for row in rows),
    )


def _price(draft: _Draft) -> PlanPrice:
    from fleetctl.planner.placement.prices import plan_price  # for fleets with prices

    live = (replica for model in draft.state.models.values() for replica in model.live)
    return plan_price(draft.ledger.nodes, live, [replica for replica, _ in draft.placed], draft.growth)


def certify(wanted: int, count: int, bound: int, method: str, repacked: int | None = None) -> Certificate:
    """Return the certificate of `count` new replicas of all that are `wanted`, including what the packer did not get.

    `bound` = of the new replicas; equal to their number only if the plan is proven best. `repacked` = the bound
    if running replicas could be moved; left out if it is not higher.
    """
    if not wanted or count == wanted:
        bound, method = count, "all missing replicas are placed" if wanted else "nothing is missing"
    elif not method:  # the packer placed everything it got
        method = NOT_TWICE
    upper = min(bound, wanted)
    return Certificate(
        placed=count, wanted=wanted, upper_bound=upper, status="optimal" if upper == count else "feasible",
        method=method, repacked_bound=repacked if repacked is not None and upper < repacked <= wanted else None,
    )


def expect(
    fleet: ResolvedFleet, inventory: Inventory, state: LiveState, shapes: Shapes
) -> list[Expected]:
    """Return the models of the file, including those this plan leaves out, and the shapes of all other replicas."""
    models = [one for model in fleet.models
              for one in expected_of(model, state.models[model.key], shapes[model.key])]
    counted = {id(replica) for model in state.models.values() for replica in (*model.live, *model.lost)}
    others = Counter(
        ReplicaShape("", (GroupShape("", 1, tuple(  # their selectors are unknown
            MemberShape(member.role, 1, Claim(member.gpus, member.vram, member.cpus, member.memory), ANY_NODE)
            for member in replica.members)),))
        for replica in inventory.replicas
        if replica.level == "HOT" and replica.state in LIVE_STATES and id(replica) not in counted)
    return [*models, *(Expected(shape, 0, count) for shape, count in others.items())]


def model_row(
    model: ResolvedModel, state: ModelState, *, create: int, blocked: Blocked | None, left_out: str | None,
    reload: int = 0, in_place: str = "", ready_in: str = "", avoided: str = "", variants: Sequence[VariantRow] = (),
    after_pilot: int = 0,
) -> ModelRow:
    """Return the row of one model; `left_out` = why flags exclude it, `in_place` = the summary of its reloads.

    `ready_in` = when its new replicas will be ready; `avoided` = which nodes the breaker keeps its new replicas off.
    """
    row = ModelRow(
        key=model.key, wanted=model.asked_for if model.variants else model.replicas, live=len(state.live),
        starting=state.starting,
        restarting=sum(replica.state == "RESTARTING" for replica in state.live),
        not_ready=sum(replica.not_ready_since is not None for replica in state.live),
        restarted=sum(was_restarted_recently(replica, state.observed_at) for replica in state.live),
        current=sum(model.has_spec(replica.spec_hash) for replica in state.live),
        outdated=state.outdated(model), create=create, after_pilot=after_pilot, reload=reload,
        blocked=blocked.replicas if blocked else 0,
        surplus=max(0, len(state.live) - state.floor(model)), startup_timeout=model.startup_timeout_s,
        startup_bytes=model.loaded_bytes, longest_start=model.longest_start_s, reason="-",
        labels=dict(model.labels), source=model.source, variants=list(variants),
    )
    paused = state.paused if state.pause and not blocked else ""
    return row.model_copy(update={"reason": "; ".join(
        filter(None, (in_place, *_reason(row, model, state, blocked, left_out),
                      variants_text(variants) if len(variants) > 1 else "", ready_in, avoided, paused)))})


def _reason(
    row: ModelRow, model: ResolvedModel, state: ModelState, blocked: Blocked | None, left_out: str | None
) -> Iterator[str]:
    """Yield what is done and why, and the state of the live replicas; some texts may be empty."""
    updates = bool(model.surge and row.outdated and row.wanted and not left_out)
    notes = list(_notes(row, state, outdated=not updates))
    live = ", ".join([f"{row.live} of {row.wanted} live", *notes])
    beyond_target = model.variants and row.create + row.after_pilot > state.below_target(model)
    of_minimum = " for variants below their min" if beyond_target else ""
    obstacle = f"{blocked.replicas} blocked: {blocked.message}" if blocked else ""
    if updates:
        yield _update_reason(row, model, state) if row.create or row.after_pilot or not blocked else ""
        yield obstacle
        yield ", ".join(notes)
    elif left_out or ((row.surplus or not row.wanted) and not (row.create or row.after_pilot or row.blocked)):
        wanted = row.live - row.surplus
        of = f"the target of {wanted}" if wanted == model.replicas else f"the {wanted} that minimums ask for"
        held = f"held: {row.surplus} beyond {of}, kept" if row.surplus else ""
        yield left_out or held or "no target (replicas: 0)"
        yield ", ".join(notes)
    elif row.create or row.after_pilot or blocked:
        create = _number(row) if row.after_pilot else row.create
        yield f"create {create}{of_minimum}: {live}" if create else ""
        yield obstacle
        yield live if notes and not create else ""
    else:
        changes = row.starting or row.not_ready or row.restarted or row.outdated
        yield live if changes else f"nothing to do: {live}"


def _number(row: ModelRow) -> str:
    """Return how many replicas are created if some wait for a pilot: `1 first as a pilot, 39 once it is ready`."""
    if not row.create:
        return f"{row.after_pilot} once a pilot is ready"
    if row.variants:  # some may be of a variant that ran
        return f"{row.create} first, {row.after_pilot} once a pilot of their variant is ready"
    pilots, one = ("a pilot", "it") if row.create == 1 else ("pilots", "one of them")
    return f"{row.create} first as {pilots}, {row.after_pilot} once {one} is ready"


def _notes(row: ModelRow, state: ModelState, *, outdated: bool) -> Iterator[str]:
    """Yield what a reader must know of the live replicas: starting, restarting, not ready, outdated, lost."""
    if (row.startup_bytes or row.longest_start) and (row.create or row.starting):
        from fleetctl.planner.weights import allowed_text

        yield f"a start is {allowed_text(row.startup_timeout, row.startup_bytes, row.longest_start)}"
    if row.starting > row.restarting:
        yield f"{row.starting - row.restarting} starting"
    for word, at, restarts in (
        ("restarting", "since", [replica for replica in state.live if replica.state == "RESTARTING"]),
        ("restarted", "at", [replica for replica in state.live if was_restarted_recently(replica, state.observed_at)]),
    ):
        if restarts:
            times = [replica.since for replica in restarts if replica.since]
            when = f" {at} {clock_text(min(times), state.observed_at)}" if times else ""
            yield f"{len(restarts)} {word}{when} ({_worst(restarts)})"
    if row.not_ready:
        first, since = min(((replica, replica.not_ready_since) for replica in state.live if replica.not_ready_since),
                           key=itemgetter(1))
        yield (f"{row.not_ready} not ready since {clock_text(since, state.observed_at)} "
               f"({row.key}/{first.replica_id}: {first.not_ready_reason})")
    if row.outdated and outdated:
        yield f"{row.outdated} outdated"
    if state.lost:
        unbuilt = sum(not replica.constructed for replica in state.lost)
        if lost := len(state.lost) - unbuilt:
            yield f"{lost} lost with a dead node"
        if unbuilt:
            yield f"{unbuilt} never constructed"


def _worst(replicas: Sequence[Replica]) -> str:
    """Return the restarts of the replica that has used most of them, and why it ended."""
    worst = max(replicas, key=lambda replica: replica.in_a_row)
    restarts = worst.in_a_row if worst.state == "ALIVE" else max(1, worst.in_a_row)
    limit = worst.restart_max
    used = f"restart {restarts}" if limit is None else f"{restarts} of {limit} restart{'s' if limit > 1 else ''} used"
    return f"{'up to ' if len(replicas) > 1 else ''}{used}{f': {worst.error}' if worst.error else ''}"


def _update_reason(row: ModelRow, model: ResolvedModel, state: ModelState) -> str:
    """Return the progress of an update with mode surge, and the next step; none of it is blocked."""
    progress, names = f"{row.current} current of {row.wanted}", state.outdated_names(model)
    if row.create or row.after_pilot:
        count = f"{_number(row)}," if row.after_pilot else row.create
        return f"create {count} beside {row.outdated} outdated, which stay until they are evicted: {progress}"
    kept = kept_for_minimum(model, state) if model.variants else {}
    left, beyond = row.outdated - sum(kept.values()), max(0, row.surplus - row.starting - row.not_ready)
    if beyond and not left:
        variants = ", ".join(model.variants[number].variant for number in kept)
        return f"{progress}; {row.outdated} outdated, kept for the minimum of {variants}: {names} (fleetctl replace)"
    removable = min(left, beyond)
    if not removable:
        return f"{progress}; {row.outdated} outdated, one may be ended when another is ready: {names}"
    step = "may be ended now" if removable == row.outdated else f"end {removable} to continue"
    return f"{progress}; outdated, {step}: {state.outdated_names(model, but=kept)}"
