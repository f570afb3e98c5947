"""`fleetctl status`: a row per running replica, once or with every change. Read-only."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fleetctl.cli import flags
from fleetctl.cli.commands import command_app
from fleetctl.cli.completion import complete_model_keys
from fleetctl.cli.console import end_with_reader, moves, result_console, say, show_report, write_result
from fleetctl.cli.process import refuse_two_readers, this_invocation
from fleetctl.cli.replica_argument import absent
from fleetctl.documents.canonical import indented_json
from fleetctl.documents.inventory import Inventory, Replica, ReplicaMember, dead_node_ids, is_live
from fleetctl.documents.names import did_you_mean, with_key
from fleetctl.errors import InventoryError, UsageError
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.inventory.snapshot import Snapshot
from fleetctl.planner.failures import failed_lately, what_cools
from fleetctl.planner.live import is_outdated
from fleetctl.planner.options import chosen_by
from fleetctl.render.report.model import Report
from fleetctl.render.report.of_status import CardBytes, status_report
from fleetctl.render.visible import visible
from fleetctl.workflow.cluster import cluster_of, fleet_of, inventory_source, read, with_cold_selectors

if TYPE_CHECKING:  # a document needs no client
    from fleetctl.documents.plan import Drift
    from fleetctl.inventory.dashboard import InventorySource, Live

app = command_app(
    "fleetctl status",
    "fleetctl status -f fleets/prod.yaml",
    "fleetctl status openai-community/gpt2",
    "fleetctl status -f fleets/prod.yaml -l team=nlp",
    "fleetctl status -f fleets/prod.yaml --follow",
    exit_codes="0 shown, 1 error, no replica of MODEL, or something could not be read, 64 usage, 130 Ctrl-C")
UNBROKEN = 4_000
"""Width with --format wide in a pipe: more columns than any row needs."""

Look = tuple[Inventory, str]
"""The last complete inventory, and why there is no newer one; "" = it is current."""


@dataclass(frozen=True, slots=True)
class Shown:
    """Which replicas are shown: those of this fleet, in these files, this model and these keys; None = all."""

    fleet: ResolvedFleet | None
    model: str | None
    keys: frozenset[str] | None
    wide: bool
    files: Sequence[str] = ()

    def has(self, key: str) -> bool:
        """Return whether a model is shown."""
        return self.model in (None, key) and (self.keys is None or key in self.keys)

    def of(self, seen: Inventory) -> list[Replica]:
        """Return the replicas to show."""
        return [replica for replica in seen.replicas
                if (self.fleet is None or replica.fleet == self.fleet.name) and self.has(replica.model)]

    def outdated(self, seen: Inventory) -> list[Drift]:
        """Return the live replicas whose spec differs from the file's."""
        models, dead = {model.key: model for model in (self.fleet.models if self.fleet else ())}, dead_node_ids(seen)
        outdated = [replica for replica in self.of(seen) if replica.model in models and replica.replica_id is not None
                 and is_live(replica, dead) and is_outdated(replica, models[replica.model])]
        if not outdated:
            return []
        from fleetctl.planner.drift import spec_drift  # imports the ledger, which is rarely needed here

        return [spec_drift(models[replica.model], replica) for replica in outdated]

    def report(self, seen: Inventory, outdated: Sequence[Drift], *, differences: bool = True) -> Report:
        """Return the report; `differences` = also list what differs in the outdated replicas."""
        models = self.fleet.models if self.fleet else ()
        in_variants = any(model.variants and self.has(model.key) for model in models) if self.fleet else any(
            replica.variant for replica in seen.replicas if self.has(replica.model))
        wanted = {model.key: model.replicas for model in models if self.has(model.key)} if self.fleet else None
        hidden = {model.key for model in models if not self.has(model.key)}
        return status_report(self.of(seen), {node.id: node.name for node in seen.nodes}, dead_node_ids(seen),
                             outdated, wanted, observed_at=seen.observed_at, wide=self.wide, differences=differences,
                             files=self.files, on_cards=self._on_cards(seen) if self.wide else None,
                             variant_of=self._variants() if in_variants else None,
                             failed=[failure for failure in failed_lately(seen, self.fleet.name if self.fleet else None)
                                     if self.has(failure.model)] if seen.failures else [],
                             cooling=[(item.name, item.why) for item in what_cools(self.fleet, seen)
                                      if item.node or item.name not in hidden] if self.fleet else (),
                             cold=list(self._cold(self.fleet, seen)) if self.fleet else (), nodes=seen.nodes,
                             starting=self._starting(self.fleet, seen) if self.fleet else {},
                             pauses=[pause for pause in seen.pauses
                                     if (self.fleet is None or pause.fleet == self.fleet.name)
                                     and (pause.model is None or self.has(pause.model))])

    def _variants(self) -> Callable[[Replica], str]:
        """Return what names the variant of a replica: by its spec, and without a file by its mark."""
        models = {model.key: model for model in (self.fleet.models if self.fleet else ())}

        def variant_of(replica: Replica) -> str:
            model = models.get(replica.model)
            return model.variant_name(replica.spec_hash, replica.variant) if model else replica.variant or ""

        return variant_of

    def _on_cards(self, seen: Inventory) -> CardBytes:
        from fleetctl.planner.placement.card_use import CardUse  # for wide tables

        use, models = CardUse(seen), {model.key: model for model in (self.fleet.models if self.fleet else ())}

        def on_cards(replica: Replica, member: ReplicaMember) -> tuple[int | None, int | None]:
            model = models.get(replica.model)
            known = model is not None and model.has_spec(replica.spec_hash)
            return use.estimated(model, member) if model and known else None, use.measured(replica, member)

        return on_cards

    def _starting(self, fleet: ResolvedFleet, seen: Inventory) -> Mapping[str, str]:
        """Return how long a start may take, by model, where weights or earlier starts make it longer."""
        if not seen.starts and not any(model.engine_hash for model in fleet.models):
            return {}
        from fleetctl.planner.weights import startup_notes  # most fleets have no weights

        return startup_notes(fleet, seen)

    def _cold(self, fleet: ResolvedFleet, seen: Inventory) -> Iterator[tuple[str, str, str]]:
        """Yield each shown model with `cold`, the nodes that keep its weights, and the nodes that lack them."""
        kept = [model for model in fleet.models if model.cold is not None and self.has(model.key)]
        if kept:
            from fleetctl.planner.cold import kept_on  # imports prefetches, rarely needed here

            for model in kept:
                there, lacking = kept_on(model, seen)
                yield model.key, ", ".join(there), ", ".join(lacking)


@app.command()
def status(
    *,
    model: Annotated[str | None, typer.Argument(
        metavar="MODEL", show_default=False, help="Show only this model; or a fleet file, as with -f.",
        autocompletion=complete_model_keys)] = None,
    files: flags.OwnFiles = None,
    selector: flags.Selector = None,
    where: flags.Source,
    output_format: Annotated[Literal["table", "wide", "json"], typer.Option(
        "--format", help="Output format; wide adds each member with its cards.")] = "table",
    follow: Annotated[bool, typer.Option(
        "--follow", help="Update the table in place until Ctrl-C; in a pipe, print a line per change.")] = False,
    interval: Annotated[float, flags.option(
        "--interval", metavar="DURATION", parser=flags.expiry_duration,
        help="How often --follow reads the cluster. [default: 2s]")] = 2,
) -> int:
    """Show every replica with its state, nodes and address.

    With -f it begins with a row per model (replicas wanted, ready, starting, missing), and shows only replicas with the
    mark of the fleet. A replica adopted with --adopt-from keeps the mark of its old fleet until it is replaced.
    `lost` = its node is dead; it is neither counted nor removed. `outdated` (with -f) = it was started with another
    spec than the file has now; the differences are listed below the table.
    """
    if model is not None and flags.names_fleet(model):
        files, model = [model, *(files or ())], None
    if follow and (where.inventory or output_format == "json"):
        raise UsageError("--follow shows a table of a live cluster", hint="leave out --inventory and --format json")
    refuse_two_readers(files or (), where.inventory)
    flags.refuse_selector_without(files, selector)
    invocation = this_invocation()
    fleet = fleet_of(invocation, files)
    keys = frozenset(chosen_by(selector, fleet.labels)) if selector and fleet else None
    chosen = Shown(fleet, model, keys, output_format == "wide", files or ())
    with inventory_source(invocation, where, cluster_of(fleet)) as opened:
        source = with_cold_selectors(opened, fleet) if fleet else opened
        seen = read(invocation, source, ages=True)
        if output_format != "table" and not isinstance(source, Snapshot):
            from fleetctl.inventory.cold import with_verified  # most clusters have no weights to read about

            seen = with_verified(source.client, seen)
        if model is not None and not chosen.of(seen):
            chosen = _by_checkpoint(model, chosen, seen)
        if follow and not isinstance(source, Snapshot):
            _follow(source, seen, chosen, interval)
        if output_format == "json":
            write_result(indented_json(seen.model_copy(update={"replicas": chosen.of(seen)})))
        else:
            show_report(chosen.report(seen, _compared(source, chosen, seen)),
                        result_console(UNBROKEN) if chosen.wide else None)
        if cluster_of(fleet).grow and not isinstance(source, Snapshot):
            from fleetctl.inventory.autoscaler import autoscaler_news  # rarely needed: few clusters grow

            say("note", *autoscaler_news(source.client))
    say("warning", *seen.warnings)
    if not seen.complete:
        say("error", "the inventory is incomplete: there may be more than is shown")
    return 0 if seen.complete else 1


def _compared(source: InventorySource, chosen: Shown, seen: Inventory) -> list[Drift]:
    """Return the outdated replicas; of a running cluster with the differences from the file."""
    outdated = chosen.outdated(seen)
    if not outdated or chosen.fleet is None or isinstance(source, Snapshot):
        return outdated
    from fleetctl.workflow.spec_changes import add_changes, look_up_changes  # reads the history of applies

    return add_changes(outdated, look_up_changes(source.client, chosen.fleet, outdated))


def _follow(source: Live, first: Inventory, chosen: Shown, interval_s: float) -> None:
    """Show changes until KeyboardInterrupt: in place on a terminal, a line per change in a pipe.

    While the cluster cannot be read completely, the last status stays, and the reason is shown.
    """
    def report_of(seen: Inventory) -> Report:
        return chosen.report(seen, chosen.outdated(seen), differences=False)

    end_with_reader()
    looks = _looks(source, first, interval_s)
    if moves(sys.stdout.isatty()):
        _in_place(looks, report_of, interval_s)
    else:
        _line_by_line(looks, report_of)


def _looks(source: Live, seen: Inventory, interval_s: float) -> Iterator[Look]:
    yield seen, ""
    while True:
        time.sleep(interval_s)
        try:
            now = source.read(ages=True)
        except InventoryError as error:
            yield seen, error.message
            continue
        if now.complete:
            seen = now
        yield seen, "" if now.complete else f"not everything could be read: {'; '.join(now.warnings)}"


def _in_place(looks: Iterator[Look], report_of: Callable[[Inventory], Report], interval_s: float) -> None:
    from rich.console import Group
    from rich.live import Live as Display

    from fleetctl.render.report.terminal import report_lines

    console = result_console()
    with Display(console=console, auto_refresh=False) as live:
        for seen, trouble in looks:
            report = report_of(seen)
            how = f"as of {seen.observed_at}: {trouble}" if trouble else f"every {interval_s:g} s"
            # what does not fit on the screen is cut off at the bottom
            shown = replace(report, heading=(report.conclusion, f"{seen.observed_at}, {how}"), conclusion="")
            live.update(Group(*report_lines(shown, console.width)), refresh=True)


def _line_by_line(looks: Iterator[Look], report_of: Callable[[Inventory], Report]) -> None:
    shown: Mapping[str, str] = {}
    trouble_before = ""
    for number, (seen, trouble) in enumerate(looks):
        if trouble and not trouble_before:
            say("warning", f"the cluster cannot be read: {trouble}")
        elif trouble_before and not trouble:
            say("note", "the cluster can be read again")
        report, trouble_before = report_of(seen), trouble
        rows = {str(row[0]): visible("  ".join(
                    str(cell) for column, cell in zip(table.columns[1:], row[1:], strict=True)
                    if cell and column.news))
                for table in report.tables if table.key == "replica" for row in table.rows}
        if number == 0:
            show_report(report)
            sys.stdout.flush()
        for name in (*rows, *(shown.keys() - rows.keys())) if number else ():
            row = rows.get(name, "gone")
            if row != (before := shown.get(name, "")) and not before.startswith(f"{row}  "):  # only its note has gone
                write_result(f"{seen.observed_at} {name} {row}\n")
        shown = rows


def _by_checkpoint(model: str, chosen: Shown, seen: Inventory) -> Shown:
    """Return the choice by key, for a model that is named by its checkpoint.

    Reports that no replica of a wanted model runs; raises FleetctlError for an unknown name.
    """
    fleet = chosen.fleet
    wanted = {written.key: written.replicas for written in fleet.models} if fleet else {}
    model = with_key(model, {replica.model for replica in seen.replicas} | wanted.keys())
    chosen = replace(chosen, model=model)
    if chosen.of(seen):
        return chosen
    if model in wanted:
        say("note", f"no replica of {model} runs; the fleet file wants {wanted[model]}")
        return chosen
    running = {replica.model for replica in replace(chosen, model=None, keys=None).of(seen)}
    hint = did_you_mean(model, running | wanted.keys()) or "`fleetctl status` lists what runs"
    raise absent(seen, f"there is no replica of {model}{f' in fleet {fleet.name}' if fleet else ''}", hint)
