"""`--context NAME` and `--color`: before the command, and, as people are used to write them, after it.

`--context` goes after any command that asks a cluster, `--color` after all.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.main import get_command

from fleetctl.cli.console import ColorChoice, choose_color
from fleetctl.cli.process import choose_context, home_folder


def complete_contexts(incomplete: str) -> list[str]:
    """Return the names of contexts that begin with `incomplete`; none where the file cannot be read."""
    import os

    from fleetctl.workflow.contexts import config_path, read_contexts  # slow, and every command imports this module

    try:
        names = read_contexts(config_path(os.environ, home_folder())).contexts
    except Exception:  # noqa: BLE001  a broken file must not break the shell
        return []
    return [name for name in names if name.startswith(incomplete) and name.isprintable()]


_SETTINGS: dict[str, Any] = {
    "metavar": "NAME", "show_default": False, "autocompletion": complete_contexts,
    "help": "Use the cluster of this context. Order: --address, FLEETCTL_ADDRESS, this, spec.cluster.address, the "
            "current context. [env var: FLEETCTL_CONTEXT]"}
ContextOption = Annotated[str | None, typer.Option("--context", **_SETTINGS)]
_LaterOption = Annotated[str | None, typer.Option(
    "--context", expose_value=False, callback=lambda name: name and choose_context(name), **_SETTINGS)]
_LaterColor = Annotated[ColorChoice | None, typer.Option(
    "--color", expose_value=False, hidden=True, callback=lambda choice: choice and choose_color(choice))]


def with_later_options(command: Any) -> Any:  # noqa: ANN401  Click's Command, of which typer brings its own
    """Return the command with --color, and with --context if it or a command below it has an address."""
    places = [at for at, parameter in enumerate(command.params) if parameter.name == "address"]
    context, color = _options()
    if places:
        command.params.insert(places[0] + 1, context)
    command.params.append(color)
    for below in getattr(command, "commands", {}).values():
        with_later_options(below)
    return command


def _options() -> Any:  # noqa: ANN401  Click's Options
    app = typer.Typer(add_completion=False)
    app.command()(_takes_them)
    return get_command(app).params[:2]


def _takes_them(context: _LaterOption = None, color: _LaterColor = None) -> None: ...
