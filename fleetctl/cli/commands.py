"""Building commands: the application, the end of its help, and groups that import a command only when it runs.

`--help` and the completion of command names import no command: the group's table has the line that lists it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial, wraps
from importlib import import_module
from textwrap import fill
from typing import Any, NamedTuple, get_args

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup
from typer.main import get_command

from fleetctl.cli.context_option import with_later_options
from fleetctl.cli.other_tools import refuse_foreign, refuse_foreign_command
from fleetctl.collector import resume_after_loading

VERBATIM = "\b"  # the help formatter does not rewrap a paragraph that begins with it


class Listed(NamedTuple):
    """A command as the help lists it: the `app` of a module in `fleetctl.cli`."""

    module: str
    summary: str

    def load(self) -> Any:  # noqa: ANN401  Click's Command, which typer vendors
        """Import the module and return its command, with the options common to all commands."""
        return _load(self.module)


@cache
def _load(module: str) -> Any:  # noqa: ANN401
    command = get_command(import_module(f"fleetctl.cli.{module}").app)
    resume_after_loading()
    return with_later_options(command)


def lazy_group(
    commands: Mapping[str, Listed], sections: Mapping[str, Mapping[str, Listed]] | None = None
) -> type[TyperGroup]:
    """Return a group class with these commands, in this order; the help lists them by `sections` if given."""

    class LazyGroup(TyperGroup):
        def __init__(self, **settings: Any) -> None:  # noqa: ANN401  typer's own
            super().__init__(**settings)
            self.commands = {name: TyperCommand(name, short_help=one.summary) for name, one in commands.items()}

        def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:  # noqa: ANN401
            """Import the command that the first argument names; return it with the remaining arguments."""
            if not ctx.resilient_parsing:
                refuse_foreign_command(args, commands)
            name, listed, rest = super().resolve_command(ctx, args)
            return name, commands[name].load() if name and listed else None, rest

        def format_commands(self, _: Any, formatter: Any) -> None:  # noqa: ANN401  Click's
            """Write the list of commands."""
            width = max(map(len, commands))
            for title, listed in (sections or {"Commands": commands}).items():
                with formatter.section(title):
                    formatter.write_dl([(name.ljust(width), one.summary) for name, one in listed.items()])

    return LazyGroup


class Command(TyperCommand):
    """A command that takes plain arguments as fleet files if -f is its only input, and refuses flags of other tools."""

    def __init__(self, *args: Any, **settings: Any) -> None:  # noqa: ANN401  typer's own
        super().__init__(*args, **settings)
        for one in self.params:
            if isinstance(one, TyperArgument):
                one.get_help_record = partial(_without_type, one.get_help_record)  # type: ignore[method-assign]

    @property
    def takes_files(self) -> bool:
        """Whether plain arguments are fleet files."""
        return any("--file" in one.opts for one in self.params) and not any(
            isinstance(one, TyperArgument) for one in self.params)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401  Click's Context
        """Parse the arguments. Raises UsageError for a flag of another tool, and names ours."""
        if not ctx.resilient_parsing:
            refuse_foreign(args, {name for one in self.params for name in one.opts})
        if self.takes_files:
            ctx.allow_extra_args = True
            args = self._with_files_named(ctx, args)
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if getattr(error, "ctx", ctx) is None:  # so that the error names the help of this command
                error.ctx = ctx  # type: ignore[attr-defined]
            raise

    def _with_files_named(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401  Click's Context
        """Return the arguments with --file before each plain one. They stay in order: it decides which policy wins."""
        named, rest = list[str](), list(args)
        while rest:
            parser = self.make_parser(ctx)
            parser.allow_interspersed_args = False
            plain = parser.parse_args(list(rest))[1]
            taken = rest[:len(rest) - len(plain)]
            if taken[-1:] == ["--"]:  # everything after it is plain
                return [*named, *taken[:-1], *(word for file in plain for word in ("--file", file))]
            named += [*taken, *(("--file", plain[0]) if plain else ())]
            rest = plain[1:]
        return named

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ANN401  Click's Context
        """Return the parts of the usage line; only a choice keeps its braces."""
        pieces = [re.sub(r"^{([^|]+)}", r"\1", piece) for piece in super().collect_usage_pieces(ctx)]
        return [*pieces, *(["[FILE]..."] if self.takes_files else [])]


def _without_type(record: Callable[[Any], tuple[str, str] | None], ctx: Any) -> tuple[str, str] | None:  # noqa: ANN401
    """Return the help line of an argument without its type, a Python name."""
    found = record(ctx)
    return found and (re.sub(r" <.*>$", "", found[0]), found[1])


@dataclass(frozen=True, slots=True)
class MadeBy:
    """Marks a parameter of a command that is built from several flags: the parameters of `make`, in that order."""

    make: Callable[..., object]


def flag_by_flag(command: Callable[..., int]) -> Callable[..., int]:
    """Return the command with each `MadeBy` parameter replaced by the flags it is built from."""
    own = inspect.signature(command, eval_str=True)
    makers = {name: mark.make for name, one in own.parameters.items() for mark in get_args(one.annotation)
              if isinstance(mark, MadeBy)}
    flags = {name: inspect.signature(make, eval_str=True).parameters for name, make in makers.items()}

    @wraps(command)
    def called(**given: object) -> int:
        for name, make in makers.items():
            given[name] = make(**{flag: given.pop(flag) for flag in flags[name]})
        return command(**given)

    called.__signature__ = own.replace(parameters=[  # type: ignore[attr-defined]
        one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in own.parameters.items() for one in flags.get(name, {name: parameter}).values()])
    return called if makers else command


class _App(typer.Typer):
    def command(self, name: str | None = None, **settings: Any) -> Any:  # noqa: ANN401  typer's own
        decorate = super().command(name, cls=Command, **{"epilog": self.info.epilog, **settings})
        return lambda function: decorate(flag_by_flag(function))


def command_app(*examples: str, exit_codes: str = "", **settings: Any) -> typer.Typer:  # noqa: ANN401  typer's own
    """Return an application for a command or a group of commands, whose help ends with examples and exit codes."""
    # `completion` prints our own scripts, which handle the special characters in model keys
    return _App(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False,
                epilog=epilog(*examples, exit_codes=exit_codes) if examples else None, **settings)


def epilog(*examples: str, exit_codes: str) -> str:
    """Return the end of a command's help; `exit_codes` reads like `0 done, 1 error, 64 usage`."""
    shown = "\n".join(f"  {example}" for example in examples)
    kept = re.sub(r"(\d) ", "\\1\xa0", exit_codes)  # a code stays on the line of its meaning
    codes = fill(kept, 78, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False).replace("\xa0", " ")
    return f"{VERBATIM}\nExamples:\n{shown}\n\n{VERBATIM}\nExit codes:\n{codes}"
