"""Weights as tables and reports: the sources that a plan chose, those that the replicas used when they started, and the
results of `prefetch` and `prune`. Predicts no times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fleetctl.documents.canonical import short_hash
from fleetctl.documents.inventory import Node, Replica, may_have_loaded, open_cases
from fleetctl.documents.quantity import count_of, format_bytes, grouped
from fleetctl.documents.weights import GotCaches, GotWeights, PlannedWeights, ServedWeights
from fleetctl.render.replica_text import ids_text, name_of, replica_name
from fleetctl.render.report.model import MODEL, REPLICA, Cell, Column, Report, Table

if TYPE_CHECKING:
    from fleetctl.documents.answers import CachedArtifact, Prefetched, Pruned
    from fleetctl.documents.events import ReplicaOutcome
    from fleetctl.documents.plan import Action

LINES_SHOWN = 20
PLANNED = (Column("replicas", "replicas", name=True), Column("from", "weights from"))
FETCHED = (MODEL, Column("nodes", "onto", name=True), Column("from", "weights from"))
AMOUNTS = tuple(Column(key, title, numeric=True)
                for key, title in (("bytes", "fetched"), ("reused", "reused"), ("took", "time")))
GOT = (REPLICA, Column("from", "weights from"), *AMOUNTS)
WRONG = (Column("node", "node", name=True), Column("file", "file", name=True), Column("piece", "piece", numeric=True),
         Column("found", "found"), Column("replicas", "loaded by, perhaps", name=True), Column("now", "now"))
WRONG_NOW = {"wrong": "no longer served", "fetched": "fetched again, for the next start",
             "unfetched": "could not be fetched again"}
PREFETCHED = (Column("node", "node", name=True), Column("weights", "weights"), Column("from", "from"), *AMOUNTS)
CACHED = (Column("node", "node", name=True), Column("weights", "weights"), Column("bytes", "size", numeric=True),
          Column("result", "state"))
RUNS = (Column("fleet", "fleet", name=True), Column("verb", "verb"), Column("newest", "newest"),
        Column("found", "found", numeric=True), Column("removed", "deleted", numeric=True))


def planned_weights(actions: Iterable[Action]) -> Table:
    """Return the weights' source for each replica that starts or reloads; replicas with the same source share a row."""
    by_source = grouped(((action.model, ", ".join(dict.fromkeys(sources))), action.replica_id) for action in actions
                        if (sources := [_planned(one.weights, one.node, action.op == "promote")
                                        for one in action.members if one.weights]))
    rows = [(f"{model}/{ids_text(ids)}", source) for (model, source), ids in by_source.items()]
    return Table("weights", "Weights", PLANNED, tuple(rows), folded=True, rank=4, limit=LINES_SHOWN,
                 line="{replicas}: weights from {from}")


def planned_fetches(prefetches: Iterable[Action]) -> Table:
    """Return the weights that nodes would fetch to keep on disk; nodes with the same source share a row."""
    rows = []
    for one in prefetches:
        by_node = grouped((member.node, _planned(member.weights)) for member in one.members if member.weights)
        by_source = grouped((", ".join(dict.fromkeys(sources)), node) for node, sources in by_node.items())
        rows += [(one.model, ", ".join(names), source) for source, names in by_source.items()]
    return Table("prefetch", "Would fetch", FETCHED, tuple(rows), folded=True, rank=3, limit=LINES_SHOWN,
                 line="weights of {model} onto {nodes} from {from}", signs=("+",) * len(rows))


def got_weights(outcomes: Sequence[ReplicaOutcome]) -> Table:
    """Return the source of each started replica's weights, and the sources it abandoned."""
    rows = [(replica_name(row.model, row.replica_id), *got_cells(row.weights, row.notes))
            for row in outcomes if row.weights]
    return Table("weights", "Weights", GOT, tuple(rows), folded=True, rank=4, limit=LINES_SHOWN)


def got_cells(got: GotWeights, left: Iterable[str]) -> tuple[Cell, ...]:
    """Return the source of weights, with the sources abandoned for it (`left`), and the cells of AMOUNTS."""
    return ((" ".join(filter(None, (got.source, got.from_))), *left), format_bytes(got.bytes),
            format_bytes(got.reused) if got.reused else "", f"{got.seconds:.1f}s")


def served_text(served: ServedWeights | None) -> str:
    """Return what a member serves: artifact, part and size; since when it is verified, or why it is not served."""
    if served is None:
        return ""
    part = f" part {served.view}" if served.view else ""
    size = f", {format_bytes(served.bytes)}" if served.bytes is not None else ""
    verified = f", verified since {served.verified}" if served.verified else ""
    unserved = f", not served: {served.unserved}" if served.unserved else ""
    return f"{short_hash(served.artifact)}{part}{size}{verified}{unserved}"


def caches_text(got: GotCaches | None) -> str:
    """Return how a member got its compile caches, or why not."""
    if got is None:
        return ""
    source = {"disk": "from its node", "peer": f"from {got.from_}"}.get(got.source, "compiled")
    amount = f", {format_bytes(got.bytes)} in {got.seconds:.1f}s" if got.source else ""
    name = f"{short_hash(got.key)} " if got.key else ""
    return f"{name}{source}{amount}{f': {got.trouble}' if got.trouble else ''}"


def wrong_weights(nodes: Iterable[Node], replicas: Sequence[Replica]) -> Table:
    """Return the files on nodes' disks that were found wrong, with the replicas whose engines may have loaded them."""
    rows = [(node.name, wrong.file, str(wrong.piece), wrong.at, ", ".join(map(name_of, may_have_loaded(
        node, wrong, replicas))), WRONG_NOW[wrong.now] + (f": {wrong.trouble}" if wrong.trouble else ""))
        for node in nodes for wrong in open_cases(node, replicas)]
    return Table("wrong", "Wrong weights on disks", WRONG, tuple(rows))


def _planned(weights: PlannedWeights, node: str | None = None, promoted: bool = False) -> str:
    """Return the source of a member's weights; `promoted` = its WARM replica on the `node` has them in memory."""
    here = next((one for one in weights.sources[:1] if one.node == node), None)
    if promoted and (here is None or here.bytes is not None):  # bytes are known only of the same part of the files
        return f"memory on {node} (nothing to fetch)"
    if here is not None and here.bytes is not None:
        return f"{here.replica} on {here.node} (on this node already, nothing to fetch)"
    if not weights.sources:
        return next((f"{kind} {name}" for kind, name in weights.from_[0].items()), "")
    best = weights.sources[0]
    parts = [format_bytes(best.bytes) if best.bytes is not None else "", f"wave {best.wave}" if best.wave else ""]
    details = ", ".join(filter(None, parts))
    return f"{best.replica} on {best.node}" + (f" ({details})" if details else "")


def prefetched_report(answer: Prefetched) -> Report:
    """Return the report of `prefetch`: the weights each node has now."""
    fetched = sum(row.fetched is not None for row in answer.rows)
    one_artifact = len({row.artifact for row in answer.rows}) == 1
    rows = [(row.node, short_hash(row.artifact),
             *(got_cells(row.fetched, row.fetched.left) if row.fetched else (f"failed: {row.trouble}", "", "", "")))
            for row in answer.rows]
    return Report(
        kind="answer", identity="prefetch", fleet=answer.fleet, title="Prefetch",
        tables=(Table("fetched", f"Weights of {answer.model}", PREFETCHED, tuple(rows)),),
        conclusion=f"the weights of {answer.model} are on {fetched} of {count_of(len(answer.rows), 'node')}"
        if one_artifact else f"{fetched} of {len(answer.rows)} fetched",
        exit_code=answer.exit_code)


def pruned_report(answer: Pruned) -> Report:
    """Return the report of `prune`: the weights or runs that were removed, or would be."""
    if answer.runs is not None:
        found, removed = sum(row.found for row in answer.runs), sum(row.removed for row in answer.runs)
        sentence = "no run to delete" if not found else (
            f"{count_of(found, 'run')} can be deleted" if answer.dry_run else f"{removed} of {found} runs deleted")
        table = Table("runs", "Runs that no history keeps", RUNS, tuple(
            (row.fleet or "-", row.verb, row.newest or "", str(row.found), str(row.removed)) for row in answer.runs))
    else:
        sentence, rows = _pruned_sentence(answer), []
        for node in answer.nodes:
            rows += [(node.node, "", "", f"failed: {node.trouble}")] if node.trouble else [
                (node.node, _what(one), format_bytes(one.bytes), _state(one, dry_run=answer.dry_run))
                for one in node.artifacts]
        table = Table("cached", "Weights that no file names, and compile caches", CACHED, tuple(rows))
    return Report(kind="answer", identity="prune", title="Prune", tables=(table,) if table.rows else (),
                  conclusion=sentence, exit_code=answer.exit_code)


def _pruned_sentence(answer: Pruned) -> str:
    removed = [[one for one in node.artifacts if (not one.used if answer.dry_run else one.removed)]
               for node in answer.nodes]
    nodes = count_of(sum(map(bool, removed)) or len(removed), "node")
    if not any(node.artifacts for node in answer.nodes):
        return f"nothing to remove on {nodes}"
    size = sum(one.bytes for artifacts in removed for one in artifacts)
    amount = format_bytes(size) if any(removed) else "nothing"
    return f"{amount} {'can be' if answer.dry_run else 'was'} removed from {nodes}"


def _what(artifact: CachedArtifact) -> str:
    return short_hash(artifact.artifact) + (f" compile cache of {artifact.cache}" if artifact.cache else "")


def _state(artifact: CachedArtifact, *, dry_run: bool) -> str:
    if artifact.removed:
        return "removed"
    if artifact.used:
        return f"kept: {artifact.trouble}" if artifact.trouble else "in use, kept"
    return "would be removed" if dry_run else f"not removed{f': {artifact.trouble}' if artifact.trouble else ''}"
