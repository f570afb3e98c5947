"""`--context NAME` and `--color`: accepted before the command and after it.

After a command, `--context` is an option only if the command contacts a cluster; `--color` always is.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.main import get_command

from fleetctl.cli.console import ColorChoice, choose_color
from fleetctl.cli.process import choose_context, home_folder


def complete_contexts(incomplete: str) -> list[str]:
    """Return the names of contexts that begin with `incomplete`; none if the file cannot be read."""
    import os

    from fleetctl.workflow.contexts_file import (  # slow, and every command imports this module
        config_path,
        read_contexts,
    )

    try:
        names = read_contexts(config_path(os.environ, home_folder())).contexts
    except Exception:  # noqa: BLE001  a broken file must not break the shell
        return []
    return [name for name in names if name.startswith(incomplete) and name.isprintable()]


def not_empty(value: str | None) -> str | None:
    """Refuse a flag without a value, which would otherwise count as not given: another cluster would be meant."""
    if value is not None and not value.strip():
        raise typer.BadParameter("is empty; is a variable unset?")
    return value


_SETTINGS: dict[str, Any] = {
    "metavar": "NAME", "show_default": False, "autocompletion": complete_contexts,
    "help": "Context (named cluster) to use. Precedence: --address, --context, FLEETCTL_ADDRESS, FLEETCTL_CONTEXT, "
            "spec.cluster.address, current context. [env var: FLEETCTL_CONTEXT]"}
ContextOption = Annotated[str | None, typer.Option("--context", callback=not_empty, **_SETTINGS)]
_LaterOption = Annotated[str | None, typer.Option(
    "--context", expose_value=False, callback=lambda name: not_empty(name) and choose_context(name), **_SETTINGS)]
_LaterColor = Annotated[ColorChoice | None, typer.Option(
    "--color", expose_value=False, hidden=True, callback=lambda choice: choice and choose_color(choice))]


def with_later_options(command: Any) -> Any:  # noqa: ANN401  Click's Command, which typer vendors
    """Add --color to a command and its subcommands, and --context to those with --address; returns the command."""
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
