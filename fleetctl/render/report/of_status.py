"""The status as a report: a row per model if a file gives the wanted number, a row per replica, and outdated ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from fleetctl.documents.base import age_text
from fleetctl.documents.canonical import short_hash
from fleetctl.documents.inventory import STARTING_STATES, Node, Pause, Replica, ReplicaMember, is_live
from fleetctl.documents.quantity import format_bytes, format_share, grouped
from fleetctl.planner.failures import Failed
from fleetctl.planner.live import ModelState, variant_name
from fleetctl.render.replica_text import name_of, node_text, note_text, state_text, status_word
from fleetctl.render.report.model import MODEL, REPLICA, VARIANT, Cell, Column, Report, Table
from fleetctl.render.report.of_weights import caches_text, served_text, wrong_weights

if TYPE_CHECKING:
    from fleetctl.documents.plan import Drift
    from fleetctl.fleetfile.resolved import ResolvedModel

CardBytes = Callable[[Replica, ReplicaMember], tuple[int | None, int | None]]
STATES = ("ready", "not ready", "starting", "restarting", "draining", "lost", "never constructed")
MODEL_ROW = (MODEL, Column("wanted", "wanted", numeric=True),
             *(Column(state, state, numeric=True, terminal="always" if state == "ready" else "filled")
               for state in STATES),
             Column("outdated", "outdated", numeric=True, terminal="filled"),
             Column("missing", "missing", numeric=True, terminal="filled"),
             Column("surplus", "surplus", numeric=True, terminal="filled"))
LEVEL = Column("level", "level")
REPLICA_ROW = (REPLICA, Column("status", "status"),
               Column("nodes", "nodes", name=True, terminal="beside"), Column("gpus", "gpus", numeric=True, news=False),
               Column("age", "age", numeric=True, terminal="filled", news=False),
               Column("since", "since", terminal="filled"),
               Column("address", "address", name=True, terminal="beside"),
               Column("fleet", "fleet", name=True, terminal="beside"), Column("note", "note", terminal="beside"))
MEMBER_ROW = (Column("member", "member", name=True), Column("node", "node", name=True),
              Column("slot", "slot", numeric=True), Column("cards", "cards"), Column("uuids", "uuids", name=True),
              Column("vram", "vram", numeric=True), Column("estimated", "estimated", numeric=True),
              Column("measured", "measured", numeric=True), Column("address", "address", name=True),
              Column("weights", "weights", name=True, terminal="filled"),
              Column("caches", "caches", terminal="filled"), Column("spec", "spec", name=True))
FAILURE_ROW = (MODEL, Column("failures", "failures", numeric=True),
               Column("last", "last"), Column("nodes", "nodes", name=True), Column("reason", "reason"))
COLD_ROW = (Column("model", "weights of", name=True), Column("nodes", "on the disks of", name=True),
            Column("lacks", "not on", name=True))
COOLING_ROW = (Column("name", "name", name=True), Column("reason", "reason"))
PAUSE_ROW = (Column("name", "model or fleet", name=True), Column("since", "paused since"), Column("until", "until"),
             Column("by", "by", name=True), Column("reason", "reason"))


def status_report(
    replicas: Sequence[Replica], node_names: Mapping[str, str], dead_nodes: frozenset[str],
    outdated: Sequence[Drift] = (), models: Sequence[ResolvedModel] | None = None, *, observed_at: str | None,
    wide: bool = False, failed: Sequence[Failed] = (), cooling: Sequence[tuple[str, str]] = (),
    cold: Sequence[tuple[str, str, str]] = (), differences: bool = True, nodes: Sequence[Node] = (),
    pauses: Sequence[Pause] = (), starting: Mapping[str, str] | None = None, files: Sequence[str] = (),
    on_cards: CardBytes | None = None,
) -> Report:
    """Return the report of `status`, with `differences` also the differences of `outdated` replicas.

    `models` = those of the fleet file; None = there is none. `observed_at` = the time from which ages are counted;
    None = show the time since when. `cooling` = (model or node, reason). `cold` = (model, nodes that keep its weights,
    nodes that lack them). `wide` adds a row per member with its cards. `nodes` = those whose wrong weights are shown.
    `starting` = a note for the starting replicas of a model. `files` = the fleet files, as given with -f. `on_cards`
    returns what a member is estimated and was measured to take of a card, in bytes; None = unknown.
    """
    old = Counter(one.model for one in outdated)
    live = grouped((replica.model, replica) for replica in replicas if is_live(replica, dead_nodes))
    words = [status_word(replica, dead_nodes) for replica in replicas]
    counts = Counter(zip((replica.model for replica in replicas), words, strict=True))
    rows_of_models, surplus = list[tuple[str, ...]](), set[str]()
    for model in models or ():
        key, state = model.key, ModelState(live.get(model.key, []))
        beyond = max(0, len(state.live) - state.floor(model))
        missing = max(0, model.replicas - len(state.live), sum(state.below_minimum(model)))
        others = [*(counts[key, word] for word in STATES[1:]), old[key], missing, beyond]
        rows_of_models.append((key, str(model.asked_for), str(counts[key, "ready"]),
                               *(str(number or "") for number in others)))
        surplus |= {key} if beyond else set()
    summary = ", ".join(f"{count} {word}" for word, count in Counter(words).items()) or "none"
    levels = any(replica.level != "HOT" for replica in replicas) or bool(cold)
    in_variants = any(one.variants for one in models) if models is not None else any(one.variant for one in replicas)
    rows = tuple(_replica_rows(replicas, node_names, dead_nodes, outdated, observed_at,
                               of_one_fleet=models is not None, levels=levels, starting=starting or {},
                               variant_of=_variant_namer(models) if in_variants else None))
    more = (*([LEVEL] if levels else []), *([VARIANT] if in_variants else []))
    columns = (REPLICA_ROW[0], *more, *REPLICA_ROW[1:]) if more else REPLICA_ROW
    tables = [
        Table("model", "Models", MODEL_ROW, tuple(rows_of_models)),
        Table("replica", "Replicas", columns, rows, beside_from=0),
        Table("cold", "Weights on disks", COLD_ROW, tuple(cold)),
        Table("member", "Members", MEMBER_ROW, tuple(_member_rows(replicas, node_names, on_cards)) if wide else ()),
        Table("failure", "Failed in the last day", FAILURE_ROW, tuple(
            (one.model, str(one.count), one.last, one.nodes, one.why) for one in failed)),
        Table("cooling", "Cooling", COOLING_ROW, tuple(cooling)),
        Table("pause", "Paused", PAUSE_ROW, tuple(
            (f"{one.model} of fleet {one.fleet}" if one.model is not None else f"fleet {one.fleet}", one.since,
             one.until or "it is resumed", one.by, one.reason) for one in pauses))]
    if any(node.wrong_weights for node in nodes):
        tables.append(wrong_weights(nodes, replicas))
    if outdated and differences:
        from fleetctl.render.report.of_plan import drift_table  # imports all of plans, which is rarely needed

        tables.append(drift_table(outdated, surplus, files, "Outdated"))
    return Report(kind="answer", title="Status", tables=tuple(table for table in tables if table.rows),
                  conclusion=f"Replicas: {summary}{f'; {len(outdated)} outdated' if outdated else ''}")


def _variant_namer(models: Sequence[ResolvedModel] | None) -> Callable[[Replica], str]:
    by_key = {model.key: model for model in models or ()}
    return lambda replica: variant_name(by_key.get(replica.model), replica)


def _replica_rows(replicas: Sequence[Replica], names: Mapping[str, str], dead: frozenset[str],
                  outdated: Sequence[Drift], observed_at: str | None, *, of_one_fleet: bool,
                  levels: bool, starting: Mapping[str, str], variant_of: Callable[[Replica], str] | None
                  ) -> Iterator[tuple[Cell, ...]]:
    old = {(one.model, one.replica_id) for one in outdated}
    for replica in replicas:
        serving = [member.host_port for member in replica.members if member.rank == 0]
        is_old = (replica.model, replica.replica_id) in old
        since = replica.since or ""
        age = age_text(since, observed_at) if since and observed_at else ""
        yield (name_of(replica),
               *([replica.level] if levels else []), *([variant_of(replica)] if variant_of else []),
               state_text(replica, dead) + (", outdated" if is_old else ""), node_text(replica, names),
               format_share(sum(member.gpus for member in replica.members)),
               age, "" if observed_at else since, ", ".join(filter(None, serving)),
               "" if of_one_fleet else replica.fleet or "(unmanaged)", note_text(replica, observed_at) or (
                   starting.get(replica.model, "") if replica.state in STARTING_STATES else ""))


def _member_rows(replicas: Sequence[Replica], names: Mapping[str, str], on_cards: CardBytes | None
                 ) -> Iterator[tuple[Cell, ...]]:
    for replica in replicas:
        for member in replica.members:
            yield (f"{name_of(replica)} {member.group or 'main'}/{member.copy_index} rank {member.rank}",
                   names.get(member.node_id or "", member.node_id or "?"),
                   "" if member.slot is None else str(member.slot), ", ".join(map(str, member.gpu_indices)),
                   tuple(member.gpu_uuids) or "", format_bytes(member.vram) if member.vram else "",
                   *(format_bytes(known) if known else ""
                     for known in (on_cards(replica, member) if on_cards else (None, None))), member.host_port,
                   served_text(member.weights), caches_text(member.caches), short_hash(replica.spec_hash))
