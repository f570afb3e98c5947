"""A group of commands that imports the module of a command when the command runs.

`--help` and the completion of command names import no command: the line that lists a command is in the group's table.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

from typer.core import TyperCommand, TyperGroup
from typer.main import get_command


class Listed(NamedTuple):
    """A command as help lists it; it is the `app` of its module below `fleetctl.cli`."""

    module: str
    summary: str

    def load(self) -> Any:  # noqa: ANN401  Click's Command, of which typer brings its own
        """Import the module and return the command."""
        return get_command(import_module(f"fleetctl.cli.{self.module}").app)


def lazy_group(commands: Mapping[str, Listed]) -> type[TyperGroup]:
    """Return the class of a group with these commands, in this order."""

    class LazyGroup(TyperGroup):
        def __init__(self, **settings: Any) -> None:  # noqa: ANN401  typer's own
            super().__init__(**settings)
            self.commands = {name: TyperCommand(name, short_help=one.summary) for name, one in commands.items()}

        def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:  # noqa: ANN401
            """Return the command that the arguments begin with, imported, and the arguments after it."""
            name, listed, rest = super().resolve_command(ctx, args)
            return name, commands[name].load() if name and listed else None, rest

    return LazyGroup
