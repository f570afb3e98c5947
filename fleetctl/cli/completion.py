"""`fleetctl completion SHELL`, and what it offers for a model key: the keys of the fleet files named so far.

The shell calls this at every press of Tab, so it never raises, reads no standard input and contacts no cluster.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from fleetctl.cli.commands import command_app, epilog
from fleetctl.cli.completion_scripts import SCRIPTS
from fleetctl.cli.console import write_document

EPILOG = epilog(
    "source <(fleetctl completion bash)                      # in ~/.bashrc",
    'fleetctl completion zsh > "${fpath[1]}/_fleetctl"',
    "fleetctl completion fish > ~/.config/fish/completions/fleetctl.fish",
    exit_codes="0 printed, 64 usage")


class Shell(str, Enum):
    """The shells there is a script for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


app = command_app()


@app.command(epilog=EPILOG)
def completion(shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")]) -> int:
    """Print the completion script of a shell.

    It completes commands, flags and model keys. The keys come from the fleet files that -f names before them.
    """
    write_document(SCRIPTS[shell.value])
    return 0


def complete_model_keys(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the model keys that begin with `incomplete`; none where the files cannot be read."""
    try:
        sources = [source for source in ctx.params.get("files") or () if source != "-"]
        return [key for key in _keys(sources) if key.startswith(incomplete) and key.isprintable()]
    except Exception:  # noqa: BLE001  a broken file must not break the shell
        return []


def complete_replicas(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the beginning of MODEL/ID for each model key; only the cluster knows the ids."""
    return [f"{key}/" for key in complete_model_keys(ctx, incomplete)]


def _keys(sources: list[str]) -> list[str]:
    if not sources:
        return []

    from fleetctl.fleetfile.load import load_fleet  # slow, and every command imports this module

    return [model.key for model in load_fleet(sources).models]
