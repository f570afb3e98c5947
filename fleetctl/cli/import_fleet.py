"""`fleetctl import`: a fleet file from what people already have, with an account of everything that did not fit in."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetctl.cli.help import epilog
from fleetctl.cli.options import AddressOption, ClusterFilesOption, InventoryOption, NamespaceOption
from fleetctl.errors import FleetctlError, UsageError

if TYPE_CHECKING:
    from fleetctl.fleetfile.nodes import Document
    from fleetctl.fleetfile.problems import Problem
    from fleetctl.importers.draft import Draft
    from fleetctl.importers.read import Imported

EPILOG = epilog(
    examples=[
        "fleetctl import --address http://ray-head:8265 -o fleets/prod.yaml    # what runs now",
        "fleetctl import deployments/ --fleet prod -o fleets/prod.yaml",
        "fleetctl import md.yaml classes.yaml clusters.yaml -o prod.yaml --inventory-out declared.json",
        "fleetctl import serve_config.yaml -o prod.yaml --format json > losses.json",
    ],
    exit_codes="0 all of it is in the fleet file, 1 nothing could be read, 3 something was lost or is left to do,\n"
               "  64 usage",
)
DEFAULT_NAME = "imported"
MODE = 0o644


class SourceKind(str, Enum):
    """What files can be."""

    NDIF = "ndif"
    MODELPLANE = "modelplane"
    LWS = "lws"
    SERVE = "serve"


class AccountFormat(str, Enum):
    """How losses are told."""

    TEXT = "text"
    JSON = "json"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("import", epilog=EPILOG)(import_fleet)


def import_fleet(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH", show_default=False,
                       help="Files to import, folders of them, or - for standard input; none = the live fleet."),
    ] = None,
    kind: Annotated[
        SourceKind | None,
        typer.Option("--from", show_default=False, help="Read every document as this. [default: told by its content]"),
    ] = None,
    fleet: Annotated[
        str | None,
        typer.Option("--fleet", metavar="NAME", show_default=False,
                     help="Name of the fleet. [default: that of the live fleet; for files: imported]"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", show_default=False, dir_okay=False,
                     help="Write the fleet file here instead of standard output."),
    ] = None,
    inventory_out: Annotated[
        Path | None,
        typer.Option("--inventory-out", metavar="FILE", show_default=False, dir_okay=False,
                     help="Make an inventory of Modelplane's InferenceClasses and InferenceClusters, for --inventory."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")] = False,
    output_format: Annotated[
        AccountFormat, typer.Option("--format", help="How to tell what was lost; json goes to standard output.")
    ] = AccountFormat.TEXT,
    files: ClusterFilesOption = None,
    address: AddressOption = None,
    namespace: NamespaceOption = None,
    inventory: InventoryOption = None,
) -> int:
    """Write a fleet file from what is there already.

    From the live fleet, or from files: NDIF's models, Modelplane's ModelDeployments, LeaderWorkerSets and Ray Serve
    configs. Whatever has no home in a fleet file is named with its line, and what is about a model stands in the fleet
    file as a comment too; nothing is guessed in silence.
    """
    _refuse_own_inputs(out, inventory_out, (*(paths or ()), *(files or ()), inventory))
    _refuse(out, inventory_out, force=force, output_format=output_format)
    if paths:
        _refuse_cluster_flags(files, address, namespace, inventory)
        imported = _from_files(paths, kind, _fleet_name(fleet), wants_inventory=inventory_out is not None)
        _write_inventory(imported, inventory_out)
        draft = imported.draft
        if fleet is None:
            draft.notes.append("The fleet's name is in the mark of every replica: choose it before the first apply.")
    else:
        draft = _from_cluster(kind, inventory_out, fleet, files, address, namespace, inventory)
    return _finish(draft, out, output_format, inventory_out)


def _refuse_own_inputs(out: Path | None, inventory_out: Path | None, reading: Sequence[str | None]) -> None:
    from fleetctl.cli.own_inputs import refuse_to_overwrite

    refuse_to_overwrite("--out", out, reading)
    refuse_to_overwrite("--inventory-out", inventory_out, reading)


def _refuse(out: Path | None, inventory_out: Path | None, *, force: bool, output_format: AccountFormat) -> None:
    if output_format is AccountFormat.JSON and out is None:
        raise UsageError("--format json and the fleet file would share standard output", hint="add -o FILE")
    for path in (out, inventory_out):
        if path is not None and path.exists() and not force:
            raise FleetctlError(f"{path} exists", hint="pass --force to overwrite it, or name another file")


def _refuse_cluster_flags(*flags: object) -> None:
    if any(flag is not None for flag in flags):
        raise UsageError("-f, --address, --namespace and --inventory are about the live fleet",
                         hint="name files to import, or a cluster to import from, not both")


def _fleet_name(fleet: str | None) -> str:
    from fleetctl.fleetfile.guess import dns_label_meant

    if fleet is not None and dns_label_meant(fleet) != fleet:
        raise UsageError(f"--fleet {fleet}: the name of a fleet is a DNS label",
                         hint=f"did you mean {dns_label_meant(fleet) or 'prod'}?")
    return fleet or DEFAULT_NAME


def _from_files(paths: Sequence[str], kind: SourceKind | None, fleet: str, *, wants_inventory: bool) -> Imported:
    from fleetctl.cli.connect import now_text
    from fleetctl.importers.read import import_documents

    documents = _documents(paths)
    return import_documents(documents, fleet=fleet, forced=kind.value if kind else None,
                            observed_at=now_text() if wants_inventory else None)


def _documents(paths: Sequence[str]) -> list[Document]:
    """Read the files; raises FleetctlError, after showing every problem, where one of them is no YAML."""
    from fleetctl.cli.connect import read_stdin
    from fleetctl.cli.console import message_console
    from fleetctl.documents.quantity import count_of
    from fleetctl.fleetfile.sources import read_sources
    from fleetctl.importers.read import documents_of
    from fleetctl.render.problems import render_problems

    read, problems = read_sources(paths, read_stdin)
    documents, wrong = documents_of(read)
    problems = [*problems, *wrong]
    if problems:
        render_problems(problems, message_console())
        raise FleetctlError(f"{count_of(len(problems), 'problem')} in what is to be imported",
                            hint="templates are to be rendered first, as with `helm template`" if wrong else None)
    return documents


def _from_cluster(
    kind: SourceKind | None, inventory_out: Path | None, fleet: str | None, files: list[str] | None,
    address: str | None, namespace: str | None, inventory: str | None,
) -> Draft:
    from fleetctl.cli.import_live import import_live

    if kind is not None or inventory_out is not None:
        raise UsageError("--from and --inventory-out are about files, and none is named",
                         hint="`fleetctl inventory --format json` saves the inventory of a cluster")
    return import_live(fleet, files=files, address=address, namespace=namespace, inventory=inventory)


def _write_inventory(imported: Imported, path: Path | None) -> None:
    from fleetctl.cli.console import say
    from fleetctl.cli.write_file import write_file
    from fleetctl.documents.indented import indented_json
    from fleetctl.documents.quantity import count_of

    if path is None:
        return
    if imported.inventory is None:
        raise FleetctlError("no InferenceCluster among the files, so there is no inventory to write")
    write_file(path, indented_json(imported.inventory), mode=MODE)
    say("inventory", f"{count_of(len(imported.inventory.nodes), 'node')} in {path}")
    for warning in imported.inventory.warnings:
        say("warning", warning)


def _finish(draft: Draft, out: Path | None, output_format: AccountFormat, inventory_out: Path | None) -> int:
    """Write the fleet file, tell what was lost, and return the exit code."""
    from fleetctl.importers.write import problems_of, write_draft

    if not draft.models:
        _tell(draft, None, output_format, ())
        if inventory_out is not None:
            return 3 if draft.partial else 0
        raise FleetctlError("no model could be read", hint=_instead(draft))
    text = write_draft(draft)
    problems = problems_of(text, str(out) if out else "<stdout>")
    _put(text, out)
    _tell(draft, out, output_format, problems)
    return 3 if draft.partial or problems else 0


def _instead(draft: Draft) -> str:
    from fleetctl.importers.sources import EXPECTED

    if draft.losses:
        return "what was found instead stands above, with its lines"
    return f"there is no document in what was named: {EXPECTED}"


def _put(text: str, out: Path | None) -> None:
    from fleetctl.cli.console import write_document
    from fleetctl.cli.write_file import write_file

    if out is None:
        write_document(text)
    else:
        write_file(out, text, mode=MODE)


def _tell(draft: Draft, out: Path | None, output_format: AccountFormat, problems: Sequence[Problem]) -> None:
    from fleetctl.cli.console import message_console, say, write_result
    from fleetctl.documents.quantity import count_of
    from fleetctl.render.losses import render_import_json, render_losses
    from fleetctl.render.problems import render_problems

    if output_format is AccountFormat.JSON:
        write_result(render_import_json(draft, str(out) if out else None, problems))
    else:
        render_losses(draft.losses, message_console())
        render_problems(problems, message_console())
    if problems:
        say("error", f"the fleet file does not load yet: {count_of(len(problems), 'problem')} to mend by hand")
    counts = {kind: sum(loss.kind == kind for loss in draft.losses) for kind in ("lost", "todo", "changed")}
    say("imported", f"{count_of(len(draft.models), 'model')} as fleet {draft.name}{f' in {out}' if out else ''}; "
                    f"{counts['lost']} lost, {counts['todo']} to do, {counts['changed']} changed")
