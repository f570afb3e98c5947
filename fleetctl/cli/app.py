"""The command tree: which commands there are, in which order help shows them, and the global options.

A command lives in `fleetctl/cli/<name>.py` and adds itself with `register(app)`. Those modules import only typer at the
top, so that `--help` and completion stay quick.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Annotated

import typer

from fleetctl.cli import console
from fleetctl.cli.console import ColorChoice

COMMAND_MODULES = (
    "validate", "fmt", "render", "schema", "inventory", "diff", "plan", "show", "capacity", "what_if", "map", "apply",
    "status", "history", "logs", "evict", "ci", "import_fleet", "completion", "demo",
)
COMMANDS = tuple(name.removesuffix("_fleet").replace("_", "-") for name in COMMAND_MODULES)
"""The commands as they are typed."""

TAGLINE = """GitOps for model replicas on a Ray/GPU fleet.

Says what would run where, what does not fit and why; then runs it. Never takes capacity away."""


def build_app(arguments: Sequence[str] = ()) -> typer.Typer:
    """Return the application for a command line: the one command that it begins with, or all of them.

    To build all costs a tenth of what a short command takes. A module that is missing or broken fails here, loudly.
    """
    app = typer.Typer(
        name="fleetctl",
        help=TAGLINE,
        epilog=_epilog(),
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=False,  # `completion` prints scripts of ours: they know the signs in model keys
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback(invoke_without_command=True)(_global_options)
    modules = dict(zip(COMMANDS, COMMAND_MODULES, strict=True))
    asked = [word for word in arguments[:1] if word in modules]
    for command in asked or COMMANDS:
        import_module(f"fleetctl.cli.{modules[command]}").register(app)
    return app


def _global_options(
    context: typer.Context,
    color: Annotated[
        ColorChoice, typer.Option("--color", help="When to colour. [env: NO_COLOR, FORCE_COLOR]")
    ] = ColorChoice.AUTO,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    console.choose_color(color)
    if version:
        from fleetctl.version import VERSION_LINE

        typer.echo(VERSION_LINE)
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(64)


def _epilog() -> str:
    from fleetctl.cli.help import epilog

    return epilog(
        examples=[
            "fleetctl validate -f fleets/",
            "fleetctl plan -f fleets/prod.yaml --address http://ray-head:8265",
            "fleetctl apply -f fleets/prod.yaml",
        ],
        exit_codes="0 fine, 1 error, 2 changes (plan), 3 partial, 4 refused by policy, 5 locked, 6 stale plan,\n"
                   "  7 stopped waiting, 64 usage, 130 Ctrl-C, 143 terminated",
    )
