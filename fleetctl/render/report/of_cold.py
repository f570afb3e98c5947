"""The results of `prefetch` and `prune` as reports: a row per node and artifact."""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.documents.cold import CachedArtifact, FetchedWeights, NodeCache, Prefetched, Pruned, PrunedRuns
from fleetctl.documents.quantity import count_of, format_bytes
from fleetctl.render.report.model import Cell, Column, Report, Table
from fleetctl.render.report.weights_tables import AMOUNTS, ID_SHOWN, got_cells

FETCHED = (Column("node", "node", name=True), Column("weights", "weights"), Column("from", "from"), *AMOUNTS)
CACHED = (Column("node", "node", name=True), Column("weights", "weights"), Column("bytes", "size", numeric=True),
          Column("result", "state"))

RUNS = (Column("fleet", "fleet", name=True), Column("verb", "verb"), Column("newest", "newest"),
        Column("found", "found", numeric=True), Column("removed", "deleted", numeric=True))


def prefetched_report(answer: Prefetched) -> Report:
    """Return the report of `prefetch`: the weights each node has now."""
    fetched = sum(row.fetched is not None for row in answer.rows)
    one_artifact = len({row.artifact for row in answer.rows}) == 1
    return Report(
        kind="answer", identity="prefetch", fleet=answer.fleet, title="Prefetch",
        tables=(Table("fetched", f"Weights of {answer.model}", FETCHED, tuple(map(_fetched, answer.rows))),),
        conclusion=f"the weights of {answer.model} are on {fetched} of {count_of(len(answer.rows), 'node')}"
        if one_artifact else f"{fetched} of {len(answer.rows)} fetched",
        exit_code=answer.exit_code)


def _fetched(row: FetchedWeights) -> tuple[Cell, ...]:
    got = row.fetched
    cells = got_cells(got, got.left) if got else (f"failed: {row.trouble}", "", "", "")
    return row.node, row.artifact[:ID_SHOWN], *cells


def pruned_report(answer: Pruned) -> Report:
    """Return the report of `prune`: the weights or runs that were removed, or would be."""
    if answer.runs is not None:
        return _runs_report(answer, answer.runs)
    rows = [row for node in answer.nodes for row in _cached(node, dry_run=answer.dry_run)]
    return Report(
        kind="answer", identity="prune", title="Prune",
        tables=(Table("cached", "Weights that no file names", CACHED, tuple(rows)),) if rows else (),
        conclusion=_pruned_sentence(answer), exit_code=answer.exit_code)


def _runs_report(answer: Pruned, runs: Sequence[PrunedRuns]) -> Report:
    found, removed = sum(row.found for row in runs), sum(row.removed for row in runs)
    rows = tuple((row.fleet or "-", row.verb, row.newest or "", str(row.found), str(row.removed)) for row in runs)
    sentence = f"{count_of(found, 'run')} can be deleted" if answer.dry_run else f"{removed} of {found} runs deleted"
    return Report(
        kind="answer", identity="prune", title="Prune",
        tables=(Table("runs", "Runs that no history keeps", RUNS, rows),) if rows else (),
        conclusion=sentence if found else "no run to delete", exit_code=answer.exit_code)


def _pruned_sentence(answer: Pruned) -> str:
    removed = [[one for one in node.artifacts if (not one.used if answer.dry_run else one.removed)]
               for node in answer.nodes]
    nodes = count_of(sum(map(bool, removed)) or len(removed), "node")
    if not any(node.artifacts for node in answer.nodes):
        return f"nothing to remove on {nodes}"
    size = sum(one.bytes for artifacts in removed for one in artifacts)
    amount = format_bytes(size) if any(removed) else "nothing"
    return f"{amount} {'can be' if answer.dry_run else 'was'} removed from {nodes}"


def _cached(node: NodeCache, *, dry_run: bool) -> list[tuple[str, str, str, str]]:
    if node.trouble:
        return [(node.node, "", "", f"failed: {node.trouble}")]
    return [(node.node, one.artifact[:ID_SHOWN], format_bytes(one.bytes), _state(one, dry_run=dry_run))
            for one in node.artifacts]


def _state(one: CachedArtifact, *, dry_run: bool) -> str:
    if one.removed:
        return "removed"
    if one.used:
        return "in use, kept"
    return "would be removed" if dry_run else f"not removed{f': {one.trouble}' if one.trouble else ''}"
