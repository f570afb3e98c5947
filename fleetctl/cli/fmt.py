"""`fleetctl fmt`: format fleet files, or list the unformatted ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fleetctl.cli import flags
from fleetctl.cli.commands import command_app
from fleetctl.cli.console import say, write_document, write_file_diff, write_result
from fleetctl.cli.process import read_stdin
from fleetctl.documents.quantity import count_of
from fleetctl.errors import FleetFileError
from fleetctl.fleetfile.format import format_sources
from fleetctl.fleetfile.sources import STDIN_NAME
from fleetctl.workflow.output_files import write_file

app = command_app(
    "fleetctl fmt fleets/",
    "fleetctl fmt --check fleets/   # in CI",
    "fleetctl fmt --diff fleets/prod.yaml",
    "fleetctl fmt - < fleet.yaml > formatted.yaml",
    exit_codes="0 formatted, 1 a broken file, or with --check an unformatted one, 64 usage")


@app.command()
def fmt(
    files: flags.Files,
    check: Annotated[bool, typer.Option("--check", help="Only list unformatted files; exit with 1 if any.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Write nothing; print the changes as a diff.")] = False,
) -> int:
    """Format fleet files: key order, indentation, blank lines.

    Comments, quotes and one-line lists stay as written, and the meaning never changes. A broken file is not touched.
    Standard input is formatted to standard output.
    """
    formatted, problems = format_sources(files, stdin=read_stdin)
    changed = [one for one in formatted if one.changed]
    if diff:
        for one in changed:
            write_file_diff(one.file, one.before, one.after, f"{one.file} (formatted)")
    elif check:
        write_result("".join(f"{one.file}\n" for one in changed))
    else:
        for one in formatted:
            if one.file == STDIN_NAME:
                write_document(one.after)
            elif one.changed:
                write_file(Path(one.file), one.after, mode=None)
    did = "would change" if check or diff else "formatted"
    say("fmt", f"{count_of(len(formatted), 'file')}, {len(changed)} {did}")
    if problems:
        raise FleetFileError(problems)
    return 1 if check and changed else 0
