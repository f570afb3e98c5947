"""`fleetctl import`: a fleet file from existing deployments, with a list of everything that does not fit in.

`fleetctl init` writes a first one, for the nodes of a cluster or for named models. Both only read the cluster.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Annotated, Literal

import typer

from fleetctl.cli import flags
from fleetctl.cli.commands import command_app, epilog
from fleetctl.cli.console import message_console, say, write_document, write_result
from fleetctl.cli.process import now_text, read_stdin, this_invocation
from fleetctl.documents.canonical import indented_json
from fleetctl.documents.inventory import Inventory
from fleetctl.documents.model import Description
from fleetctl.documents.quantity import count_of, format_bytes
from fleetctl.errors import FleetctlError, InventoryError, UsageError
from fleetctl.fleetfile.file_tree import read_whole
from fleetctl.fleetfile.guess import dns_label_meant
from fleetctl.fleetfile.model_numbers import MOST_BYTES, parse_description
from fleetctl.fleetfile.nodes import Document
from fleetctl.fleetfile.sources import read_sources
from fleetctl.importers.draft import Draft
from fleetctl.importers.first_fleet import (
    FirstFleet,
    describe_command,
    description_name,
    first_fleet,
    needs,
    repository_of,
    weights_bytes,
)
from fleetctl.importers.live import choose_fleet
from fleetctl.importers.read import EXPECTED, Imported, documents_of, import_documents
from fleetctl.importers.write import problems_of, write_draft
from fleetctl.problem import Problem
from fleetctl.render.problems import render_import_json, render_losses, render_problems
from fleetctl.workflow.cluster import cluster_of, fleet_of, inventory_source, read, read_from
from fleetctl.workflow.contexts import given_address, resolve_namespace
from fleetctl.workflow.invocation import Invocation, Where
from fleetctl.workflow.live_fleet import draft_of
from fleetctl.workflow.output_files import real_path, refuse_to_overwrite, write_file

app = command_app()
DEFAULT_NAME = "imported"
MODE = 0o644

LossFormat = Literal["text", "json"]


@app.command("import", epilog=epilog(
    "fleetctl import --address http://ray-head:8265 -o prod.yaml  # what runs",
    "fleetctl import deployments/ --fleet prod -o fleets/prod.yaml",
    "fleetctl import modelplane/ -o prod.yaml --inventory-out declared.json",
    "fleetctl import serve_config.yaml -o prod.yaml --format json > losses.json",
    exit_codes="0 everything is in the fleet file, 1 nothing could be read, 3 something was lost or is left to do, "
               "64 usage"))
def import_fleet(
    *,
    paths: Annotated[list[str] | None, typer.Argument(
        metavar="PATH", show_default=False,
        help="Files or folders to import, or - for standard input. [default: the live fleet]")] = None,
    kind: Annotated[Literal["ndif", "modelplane", "lws", "serve"] | None, typer.Option(
        "--from", show_default=False, help="Read every document as this kind. [default: by its content]")] = None,
    fleet: Annotated[str | None, flags.option(
        "--fleet", metavar="NAME",
        help="Name of the fleet. [default: the name of the live fleet; for files: imported]")] = None,
    out: Annotated[Path | None, flags.option(
        "--out", "-o", metavar="FILE", dir_okay=False,
        help="Write the fleet file here instead of standard output.")] = None,
    runtime: Annotated[Literal["podman"] | None, typer.Option(
        "--runtime", show_default=False,
        help="Start the images of the input with this container runtime. [default: images are not started]")] = None,
    inventory_out: Annotated[Path | None, flags.option(
        "--inventory-out", metavar="FILE", dir_okay=False,
        help="Write Modelplane's InferenceClasses and InferenceClusters here, as a document for --inventory.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    output_format: Annotated[LossFormat, typer.Option(
        "--format", help="Format of the list of losses; json goes to standard output.")] = "text",
    files: flags.ClusterFiles = None,
    where: flags.Source,
) -> int:
    """Write a fleet file from what already exists.

    Reads the live fleet, or files: NDIF's models, Modelplane's ModelDeployments, LeaderWorkerSets, RayServices and Ray
    Serve configs. A value that has no field in a fleet file is listed with its line; if it concerns a model, it also
    becomes a comment in the fleet file. What a person must decide or check is listed as `todo`.
    """
    out = None if str(out) == "-" else out
    reading = (*(paths or ()), *(files or ()), where.inventory)
    refuse_to_overwrite("--out", out, reading)
    refuse_to_overwrite("--inventory-out", inventory_out, reading)
    if output_format == "json" and out is None:
        raise UsageError("--format json and the fleet file would share standard output", hint="add -o FILE")
    if out is not None and inventory_out is not None and real_path(out) == real_path(inventory_out):
        raise UsageError(f"--inventory-out {inventory_out}: it is also written by --out", hint="name another file")
    for path in (out, inventory_out):
        if path is not None and path.exists() and not force:
            raise FleetctlError(f"{path} exists", hint="pass --force to overwrite it, or name another file")
    if paths:
        if files is not None or where != Where():
            raise UsageError("-f, --address, --namespace and --inventory are for the live fleet",
                             hint="name files to import, or a cluster to import from, not both")
        documents, name = _documents(paths), DEFAULT_NAME if fleet is None else flags.fleet_name(fleet)
        imported = import_documents(documents, fleet=name, forced=kind,
                                    observed_at=now_text() if inventory_out else None, runtime=runtime)
        if inventory_out:
            _write_inventory(imported, inventory_out)
        draft = imported.draft
        if fleet is None:
            draft.notes.append("The fleet's name is in the mark of every replica: choose it before the first apply.")
    elif kind or inventory_out or runtime:
        raise UsageError("--from, --runtime and --inventory-out need files to import",
                         hint="`fleetctl inventory --format json` saves the inventory of a cluster")
    else:
        draft = _live_draft(fleet, files, where)
    return _finish(draft, out, output_format, inventory_out)


def _documents(paths: Sequence[str]) -> list[Document]:
    """Read the files; if any is not YAML, shows every problem and raises FleetctlError."""
    read, problems = read_sources(paths, read_stdin)
    documents, wrong = documents_of(read)
    problems = [*problems, *wrong]
    if problems:
        render_problems(problems, message_console())
        raise FleetctlError(f"{count_of(len(problems), 'problem')} in the files to import",
                            hint="render templates first, as with `helm template`" if wrong else None)
    return documents


def _write_inventory(imported: Imported, path: Path) -> None:
    if imported.inventory is None:
        raise FleetctlError("the files have no InferenceCluster, so there is no inventory to write")
    write_file(path, indented_json(imported.inventory), mode=MODE, make_folder=True)
    say("inventory", f"{count_of(len(imported.inventory.nodes), 'node')} in {path}")
    say("warning", *imported.inventory.warnings)


def _finish(draft: Draft, out: Path | None, output_format: LossFormat, inventory_out: Path | None) -> int:
    """Write the fleet file, show the losses, and return the exit code."""
    if not draft.models:
        _show_losses(draft, None, output_format, ())
        if inventory_out is not None:
            return 3 if draft.partial else 0
        raise FleetctlError("no model could be read", hint=(
            "the losses above list what was found instead, with its lines" if draft.losses
            else f"the files have no document to import: {EXPECTED}"))
    text = write_draft(draft)
    problems = problems_of(text, str(out) if out else "<stdout>")
    if out is None:
        write_document(text)
    else:
        write_file(out, text, mode=MODE, make_folder=True)
    _show_losses(draft, out, output_format, problems)
    return 3 if draft.partial or problems else 0


def _live_draft(fleet: str | None, files: Sequence[str] | None, where: Where) -> Draft:
    """Return the draft of the fleet that runs on the cluster or in a snapshot, which has no shapes.

    `fleet` = its name, required if several run; `files` only name the cluster. Raises the errors of `choose_fleet`, and
    InventoryError if the cluster could not be read completely.
    """
    invocation = this_invocation()
    cluster = cluster_of(fleet_of(invocation, files))
    with inventory_source(invocation, where, cluster) as source:
        seen = read(invocation, source)
        name = choose_fleet(seen, fleet)
        return draft_of(source, seen, name, resolve_namespace(invocation, where, cluster))


def _show_losses(draft: Draft, out: Path | None, output_format: LossFormat, problems: Sequence[Problem]) -> None:
    if output_format == "json":
        write_result(render_import_json(draft, str(out) if out else None, problems))
    else:
        render_losses(draft.losses, message_console())
        render_problems(problems, message_console())
    if problems:
        say("error", f"the fleet file does not load yet: {count_of(len(problems), 'problem')} to fix by hand")
    counts = {kind: sum(loss.kind == kind for loss in draft.losses) for kind in ("lost", "todo", "changed")}
    say("imported", f"{count_of(len(draft.models), 'model')} as fleet {draft.name}{f' in {out}' if out else ''}; "
                    f"{counts['lost']} lost, {counts['todo']} to do, {counts['changed']} changed")


STDOUT = Path("-")
HOW_TO_DESCRIBE = "`fleetctl model describe` writes the description of a model"


@app.command(epilog=epilog(
    "fleetctl init --address http://ray-head:8265",
    "fleetctl init fleets/prod.yaml --model Qwen/Qwen3-8B --engine vllm",
    "fleetctl init --inventory snapshot.json --model org/a-8B --model org/b-70B",
    exit_codes="0 written, 1 error, or the file exists, 64 usage"))
def init(
    *,
    file: Annotated[Path | None, typer.Argument(
        metavar="FILE", show_default=False, help="Where to write the fleet file; the same as --out.")] = None,
    out: Annotated[Path | None, flags.option(
        "--out", "-o", metavar="FILE", dir_okay=False, allow_dash=True,
        help="Where to write the fleet file; - for standard output. [default: fleet.yaml]")] = None,
    model: Annotated[list[str] | None, flags.option(
        "--model", metavar="NAME", help="Include this model, by its name on Hugging Face, or by its description, a "
                                        "file of `fleetctl model describe`; repeatable.")] = None,
    engine: Annotated[
        Literal["vllm", "sglang", "llama.cpp"], typer.Option("--engine", help="Engine of the models.")] = "vllm",
    fleet: Annotated[str | None, flags.option(
        "--fleet", metavar="NAME", help="Name of the fleet. [default: the name of the file]")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    where: flags.Source,
) -> int:
    """Write a first fleet file for the nodes of a cluster.

    The file is commented, and its models fit the cards of the cluster or of a snapshot. With --model no cluster is
    needed. A model with a description, which may also be models/NAME.json beside the file, gets the smallest shape that
    holds it. Of any other, its name is a guess of its size, and is called so.
    """
    if file and out:
        raise UsageError(f"two files are named: {file} and {out}", hint="name one")
    out = file or out or Path("fleet.yaml")
    refuse_to_overwrite("--out", out if out != STDOUT else None, (where.inventory,))
    if out != STDOUT and out.exists() and not force:
        raise FleetctlError(f"{out} exists", hint="pass --force to overwrite it, or name another file with --out")
    name = flags.fleet_name(fleet) if fleet else dns_label_meant(out.stem) or "fleet"
    seen = _nodes(this_invocation(), where, required=not model)
    folder = Path() if out == STDOUT else out.parent
    named = [_described(given, folder) for given in model or ()]
    described = {key: (os.path.relpath(file, folder), about) for key, file, about in named if file and about}
    wanted = FirstFleet(name, tuple(key for key, _, _ in named), engine, seen, where.address, where.namespace,
                        described)
    text = first_fleet(wanted)
    problems = problems_of(text, str(out))
    if problems:
        render_problems(problems, message_console())
        raise FleetctlError("the result would not be a valid fleet file; nothing was written")
    for key, need in needs(wanted).items():
        if need and not need.fits:
            say("warning", f"{key} does not fit on these cards, in any shape for {engine}")
        if model and key not in described:
            guess = weights_bytes(key)
            say("note", (f"{key}: its size is a guess from its name, {format_bytes(guess)} of weights" if guess else
                         f"{key}: its name does not tell its size")
                + f"; to know it, run {describe_command(key, str(folder))}, and init again with --force")
    if out == STDOUT:
        write_document(text)
    else:
        write_file(out, text, mode=0o644, make_folder=True)
        say("init", f"wrote {out}; review it, then: fleetctl plan -f {quote(str(out))}"
                    + (f" --inventory {quote(str(where.inventory))}" if where.inventory else ""))
    return 0


def _described(given: str, folder: Path) -> tuple[str, Path | None, Description | None]:
    """Return the key of a model that --model names, and its description with its file, if there is one.

    Raises FleetctlError if that is not a description, UsageError if a source is given in place of a name.
    """
    if given.startswith(("hf:", "s3:", "http://", "https://")):
        file = quote(str(folder / "models/NAME.json"))
        raise UsageError(f"--model {given} is where a model is, not its name", hint=(
            f"describe it first: fleetctl model describe {quote(given)} --out {file}; then --model {file}"))
    beside = folder / description_name(given)
    found = next((path for path in (Path(given), beside, beside.with_name(beside.name.lower()))
                 if path.suffix == ".json" and path.is_file()), None)
    if found is None and given.endswith(".json"):
        raise FleetctlError(f"{given}: no such file", hint=HOW_TO_DESCRIBE)
    if found is None:
        return given, None, None
    try:
        about = parse_description(str(found), read_whole(found, MOST_BYTES))
    except OSError as error:
        raise FleetctlError(f"{found} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise FleetctlError(str(error), hint=HOW_TO_DESCRIBE) from None
    return (repository_of(about.source) or found.stem if found == Path(given) else given), found, about


def _nodes(invocation: Invocation, where: Where, *, required: bool) -> Inventory | None:
    """Return the cluster's inventory; None if it cannot be read, is not `required` and was not requested by a flag."""
    try:
        seen = read_from(invocation, where, None)
    except InventoryError as error:
        if where.inventory or given_address(invocation, where.address):
            raise
        if required:
            hint = "; ".join(part for part in (error.hint, "or give --model NAME") if part)
            raise InventoryError(error.message, hint=hint) from None
        invocation.say("note", f"written without the nodes of a cluster: {error.message}; to plan without a cluster, "
                               "describe its nodes: fleetctl inventory --add-node 8xH100 --format json > lab.json")
        return None
    say("warning", *seen.warnings)
    return seen
