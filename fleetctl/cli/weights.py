"""`fleetctl weights index FOLDER`: write the index of a model's files, whose hash the fleet file names; and the
model's description."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from fleetctl.agent.weights.index import NAME, WeightsError, write_index
from fleetctl.cli import flags
from fleetctl.cli.commands import command_app
from fleetctl.cli.console import say, working, write_document
from fleetctl.cli.model import describe_at, require_description, write_description
from fleetctl.documents.quantity import count_of, format_bytes
from fleetctl.errors import FleetctlError, UsageError
from fleetctl.fleetfile.layout import Piece, write_yaml
from fleetctl.workflow.model_folder import problems_of
from fleetctl.workflow.output_files import real_path

app = command_app(
    "fleetctl weights index models/Qwen3-8B",
    "fleetctl weights index models/Qwen3-8B --describe fleets/qwen3-8b.json",
    exit_codes="0 written, 1 the folder is not a complete model, cannot be read, or changed in the meantime, 64 usage")
Seen = dict[str, tuple[int, int]]


@app.callback()
def weights() -> None:
    """Index a model's files so that nodes can fetch and verify them."""


@app.command("index")
def index(folder: Annotated[Path, typer.Argument(
        metavar="FOLDER", show_default=False, help="Folder with the model's files.")],
        description: Annotated[Path | None, flags.option(
            "--describe", metavar="FILE", dir_okay=False,
            help="Also write the model's description to FILE, as `fleetctl model describe` does.")] = None) -> int:
    """Index FOLDER, and print the lines for the fleet file.

    The index, FOLDER/fleetctl-weights.json, has the SHA-256 of each file and of each 64 MiB piece of it. Hidden files
    and folders are skipped. What cannot be a complete model is refused: pointers of Git LFS, missing shards, files
    that are empty or shorter than their header says, left-overs of downloads, links that lead out of the folder.
    FOLDER may be a snapshot in a cache of Hugging Face.
    """
    if not folder.is_dir():
        raise FleetctlError(f"{folder} is not a folder")
    before = _seen(folder)
    if not before:
        raise FleetctlError(f"{folder} has no files")
    try:
        problems = problems_of(folder)
    except OSError as error:
        raise FleetctlError(f"{error.filename or folder} cannot be read: {error.strerror}") from None
    if problems:
        say("error", *problems)
        raise FleetctlError(f"{folder} is not a complete model: nothing was indexed")
    if description is not None:
        _require_describable(folder, description)  # before the hashes, which take long
    amount = f"{count_of(len(before), 'file')}, {format_bytes(sum(size for size, _ in before.values()))}"
    try:
        with working(f"reading {amount}"):
            artifact = write_index(str(folder))
        after = _seen(folder)
    except WeightsError as error:
        raise FleetctlError(f"{folder}: {error}") from None
    except OSError as error:
        raise FleetctlError(f"{error.filename or folder} cannot be read: {error.strerror}") from None
    if changed := sorted(path for path in before | after if before.get(path) != after.get(path)):
        (folder / NAME).unlink()
        raise FleetctlError(f"{folder} changed while it was read: {', '.join(changed[:3])}",
                            hint="run the command again once nothing writes there")
    say("indexed", f"{amount} in all: {folder / NAME}")
    if description is not None:
        write_description(describe_at(str(folder / NAME)), description)
    origin = Piece({"path": Piece(str(folder.resolve()))}, one_line=True)
    write_document(write_yaml(Piece({"weights": Piece({"from": Piece([origin]), "index": Piece(artifact)})})))
    return 0


def _require_describable(folder: Path, description: Path) -> None:
    """Raise UsageError or FleetctlError if the model cannot be described in that file."""
    if real_path(description).is_relative_to(real_path(folder)):
        raise UsageError(f"--describe {description}: it would be one of the model's files",
                         hint="name a file beside the fleet file")
    require_description(description)
    describe_at(str(folder))


def _seen(folder: Path) -> Seen:
    """Return the size and modification time of each file to index, by path."""
    seen: Seen = {}
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for path in (Path(where, name) for name in names if not name.startswith(".") and name != NAME):
            if path.exists():
                status = path.stat()
                seen[str(path.relative_to(folder))] = status.st_size, status.st_mtime_ns
    return seen
