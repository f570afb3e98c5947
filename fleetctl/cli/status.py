"""`fleetctl status`: what runs, a row per replica. Reads only."""

from __future__ import annotations

from contextlib import closing
from enum import Enum
from typing import Annotated

import typer

from fleetctl.cli import flags
from fleetctl.cli.commands import command_app, epilog
from fleetctl.cli.completion import complete_model_keys
from fleetctl.cli.console import say, show_report, write_result
from fleetctl.cli.process import refuse_two_readers, this_invocation
from fleetctl.cli.replica_argument import absent
from fleetctl.documents.canonical import indented_json
from fleetctl.documents.inventory import Inventory, Replica, dead_node_ids, is_live
from fleetctl.documents.nearest import did_you_mean
from fleetctl.documents.plan import Drift
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.inventory.read import Live
from fleetctl.planner.drift import spec_drift
from fleetctl.planner.live import is_outdated
from fleetctl.planner.options import chosen_by
from fleetctl.render.report.of_status import status_report
from fleetctl.workflow.cluster import cluster_of, fleet_of, inventory_source, read
from fleetctl.workflow.invocation import Where
from fleetctl.workflow.outdated import add_changes, look_up_changes

EPILOG = epilog(
    "fleetctl status",
    "fleetctl status -f fleets/prod.yaml",
    "fleetctl status openai-community/gpt2",
    "fleetctl status -f fleets/prod.yaml -l team=nlp",
    exit_codes="0 shown, 1 error, no replica of MODEL, or something could not be read, 64 usage")
app = command_app()


class StatusFormat(str, Enum):
    """What status prints."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"


@app.command(epilog=EPILOG)
def status(
    model: Annotated[str | None, typer.Argument(
        metavar="MODEL", show_default=False, help="Only this model; or a fleet file, as with -f.",
        autocompletion=complete_model_keys)] = None,
    files: flags.OwnFiles = None,
    selector: flags.Selector = None,
    address: flags.Address = None,
    namespace: flags.Namespace = None,
    inventory: flags.Inventory = None,
    output_format: Annotated[StatusFormat, typer.Option(
        "--format", help="table, wide (also each member with its cards), or json.")] = StatusFormat.TABLE,
) -> int:
    """Show every replica: its state, its nodes, its address.

    With -f first a row per model: how many are wanted, ready, starting, missing. And only the replicas with the fleet's
    mark: one that was adopted with --adopt-from has the old fleet's until it is replaced. `lost` = its node is dead; it
    is not counted and not removed. `outdated`, with -f = it was started with another spec than the file has now; the
    differences are listed below the table.
    """
    if model is not None and flags.names_fleet(model):
        files, model = [model, *(files or ())], None
    refuse_two_readers(files or (), inventory)
    flags.refuse_selector_without(files, selector)
    invocation = this_invocation()
    fleet = fleet_of(invocation, files)
    keys = chosen_by(selector, fleet.labels) if selector and fleet else None
    with closing(inventory_source(invocation, Where(inventory, address, namespace), cluster_of(fleet))) as source:
        seen = read(invocation, source, ages=True)
        ours = [replica for replica in seen.replicas if fleet is None or replica.fleet == fleet.name]
        chosen = [replica for replica in ours
                  if model in (None, replica.model) and (keys is None or replica.model in keys)]
        outdated = _outdated(chosen, seen, fleet) if fleet and output_format is not StatusFormat.JSON else []
        if fleet and isinstance(source, Live):
            outdated = add_changes(outdated, look_up_changes(source.client, fleet, outdated))
    if model is not None and not chosen:
        _report_none(model, fleet, seen, {replica.model for replica in ours})
    _show(seen, chosen, outdated, output_format, {
        one.key: one.replicas for one in fleet.models
        if model in (None, one.key) and (keys is None or one.key in keys)} if fleet else None)
    return 0 if seen.complete else 1


def _outdated(replicas: list[Replica], seen: Inventory, fleet: ResolvedFleet) -> list[Drift]:
    """Return the replicas that are live with another spec than the file's."""
    models, dead = {model.key: model for model in fleet.models}, dead_node_ids(seen)
    return [spec_drift(models[replica.model], replica) for replica in replicas
            if replica.model in models and replica.replica_id is not None and is_live(replica, dead)
            and is_outdated(replica, models[replica.model])]


def _report_none(model: str, fleet: ResolvedFleet | None, seen: Inventory, running: set[str]) -> None:
    """Say that no replica of a wanted model runs; raises FleetctlError for an unknown key."""
    wanted = {one.key: one.replicas for one in fleet.models} if fleet else {}
    if model in wanted:
        say("note", f"no replica of {model} runs; the fleet file wants {wanted[model]}")
        return
    hint = did_you_mean(model, running | wanted.keys()) or "`fleetctl status` lists what runs"
    raise absent(seen, f"there is no replica of {model}{f' in fleet {fleet.name}' if fleet else ''}", hint)


def _show(
    seen: Inventory, chosen: list[Replica], outdated: list[Drift], output_format: StatusFormat,
    wanted: dict[str, int] | None,
) -> None:
    if output_format is StatusFormat.JSON:
        write_result(indented_json(seen.model_copy(update={"replicas": chosen})))
    else:
        names = {node.id: node.name for node in seen.nodes}
        show_report(status_report(chosen, names, dead_node_ids(seen), outdated, wanted,
                                  observed_at=seen.observed_at, wide=output_format is StatusFormat.WIDE))
    for warning in seen.warnings:
        say("warning", warning)
    if not seen.complete:
        say("error", "the inventory is not complete: there may be more than is shown")
