"""`fleetctl status`: what runs, a row per replica. Reads only."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from fleetctl.cli.completion import complete_model_keys
from fleetctl.cli.help import epilog
from fleetctl.cli.options import (
    AddressOption,
    FormatOption,
    InventoryOption,
    NamespaceOption,
    OutputFormat,
    OwnFilesOption,
)
from fleetctl.cli.replica_argument import absent

if TYPE_CHECKING:
    from fleetctl.documents.inventory import Inventory, Replica
    from fleetctl.documents.plan import Drift
    from fleetctl.fleetfile.resolved import ResolvedFleet

EPILOG = epilog(
    examples=["fleetctl status", "fleetctl status -f fleets/prod.yaml", "fleetctl status openai-community/gpt2"],
    exit_codes="0 shown, 1 error, no replica of MODEL, or something could not be read, 64 usage",
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("status", epilog=EPILOG)(status)


def status(
    model: Annotated[str | None, typer.Argument(metavar="MODEL", show_default=False, help="Only this model.",
                                                autocompletion=complete_model_keys)] = None,
    files: OwnFilesOption = None,
    address: AddressOption = None,
    namespace: NamespaceOption = None,
    inventory: InventoryOption = None,
    output_format: FormatOption = OutputFormat.TABLE,
) -> int:
    """Show every replica: how it is, where it stands, its address.

    With -f only those that carry the fleet's mark: one that was adopted with --adopt-from carries the old fleet's until
    it is replaced. `lost` = its node is dead; it is not counted and not removed. `outdated`, with -f = it was started
    with another spec than the file has now; what differs is told below.
    """
    from fleetctl.cli.connect import fleet_of, inventory_source, refuse_two_readers
    from fleetctl.cli.outdated import look_up_changes, told
    from fleetctl.documents.fleet import Cluster
    from fleetctl.inventory.read import Live, read_inventory

    refuse_two_readers(files or [], inventory)
    fleet = fleet_of(files)
    with closing(inventory_source(inventory, address, namespace, fleet.cluster if fleet else Cluster())) as source:
        seen = read_inventory(source)
        ours = [replica for replica in seen.replicas if fleet is None or replica.fleet == fleet.name]
        chosen = [replica for replica in ours if model in (None, replica.model)]
        outdated = _outdated(chosen, seen, fleet) if fleet and output_format is OutputFormat.TABLE else []
        if fleet and isinstance(source, Live):
            outdated = told(outdated, look_up_changes(source.client, fleet, outdated))
    if model is not None and not chosen:
        _tell_none(model, fleet, seen, {replica.model for replica in ours})
    _show(seen, chosen, outdated, output_format, fleet)
    return 0 if seen.complete else 1


def _outdated(replicas: list[Replica], seen: Inventory, fleet: ResolvedFleet) -> list[Drift]:
    """Return the replicas that are live with another spec than the file's."""
    from fleetctl.documents.inventory import dead_node_ids, is_live
    from fleetctl.planner.drift import spec_drift
    from fleetctl.planner.live import is_outdated

    models, dead = {model.key: model for model in fleet.models}, dead_node_ids(seen)
    return [spec_drift(models[replica.model], replica) for replica in replicas
            if replica.model in models and replica.replica_id is not None and is_live(replica, dead)
            and is_outdated(replica, models[replica.model].spec_hash)]


def _tell_none(model: str, fleet: ResolvedFleet | None, seen: Inventory, running: set[str]) -> None:
    """Say that nothing runs of a model the fleet has; raises FleetctlError for a key that nobody knows."""
    from fleetctl.cli.console import say
    from fleetctl.documents.nearest import did_you_mean

    wanted = {one.key: one.replicas for one in fleet.models} if fleet else {}
    if model in wanted:
        say("note", f"no replica of {model} runs; the fleet file wants {wanted[model]}")
        return
    hint = did_you_mean(model, running | wanted.keys()) or "`fleetctl status` lists what runs"
    raise absent(seen, f"there is no replica of {model}{f' in fleet {fleet.name}' if fleet else ''}", hint)


def _show(
    seen: Inventory, chosen: list[Replica], outdated: list[Drift], output_format: OutputFormat,
    fleet: ResolvedFleet | None,
) -> None:
    from fleetctl.cli.console import result_console, say, write_result

    if output_format is OutputFormat.JSON:
        from fleetctl.documents.indented import indented_json

        write_result(indented_json(seen.model_copy(update={"replicas": chosen})))
    else:
        from collections import Counter

        from fleetctl.documents.inventory import dead_node_ids, is_live
        from fleetctl.render.report.of_status import status_report
        from fleetctl.render.report.terminal import print_report

        names = {node.id: node.name for node in seen.nodes}
        dead = dead_node_ids(seen)
        live = Counter(replica.model for replica in chosen if is_live(replica, dead))
        surplus = [one.key for one in fleet.models if live[one.key] > one.replicas] if fleet else []
        print_report(status_report(chosen, names, dead, outdated, surplus), result_console())
    for warning in seen.warnings:
        say("warning", warning)
    if not seen.complete:
        say("error", "the inventory is not complete: there may be more than what is shown")
