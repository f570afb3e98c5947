"""Building commands: the application, the end of its help, and groups that import a command only when it runs.

`--help` and the completion of command names import no command: the group's table has the line that lists it.

`--color`, and `--context` where a cluster is contacted, are accepted before the command and after it. Flags and
commands of kubectl and Terraform are refused with our equivalent before they are taken for something else.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial, wraps
from importlib import import_module
from shlex import quote
from textwrap import fill
from typing import Annotated, Any, NamedTuple, get_args

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup
from typer.main import get_command

from fleetctl.cli.console import ColorChoice, choose_color
from fleetctl.cli.process import choose_context, home_folder
from fleetctl.collector import resume_after_loading
from fleetctl.errors import UsageError

VERBATIM = "\b"  # the help formatter does not rewrap a paragraph that begins with it


class Listed(NamedTuple):
    """A command as the help lists it: the `app` of a module in `fleetctl.cli`, or of several there the one so named."""

    module: str
    summary: str

    @cache  # noqa: B019  it lives as long as the process
    def load(self, name: str) -> Any:  # noqa: ANN401  Click's Command, which typer vendors
        """Import the module and return the command, with the options common to all commands."""
        command: Any = get_command(import_module(f"fleetctl.cli.{self.module}").app)
        resume_after_loading()
        return _with_later_options(getattr(command, "commands", {}).get(name, command))


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
            if not ctx.resilient_parsing and args and args[0] in OTHERS_COMMANDS and args[0] not in commands:
                raise UsageError(f"there is no command {args[0]} here", hint=OTHERS_COMMANDS[args[0]])
            name, listed, rest = super().resolve_command(ctx, args)
            return name, commands[name].load(name) if name and listed else None, rest

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
        for parameter in self.params:
            if isinstance(parameter, TyperArgument):
                parameter.get_help_record = partial(  # type: ignore[method-assign]
                    _without_type, parameter.get_help_record)

    @property
    def takes_files(self) -> bool:
        """Whether plain arguments are fleet files."""
        return any("--file" in parameter.opts for parameter in self.params) and not any(
            isinstance(parameter, TyperArgument) for parameter in self.params)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401  Click's Context
        """Parse the arguments. Raises UsageError for a flag of another tool, and names ours."""
        if not ctx.resilient_parsing:
            args = _as_ours(args, self.params)
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


class Group(TyperGroup):
    """A command that also has subcommands: its own flags are read as those of `Command`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401  Click's Context
        """Parse the arguments. Raises UsageError for a flag of another tool, and names ours."""
        return super().parse_args(ctx, args if ctx.resilient_parsing else _as_ours(args, self.params))


def _without_type(record: Callable[[Any], tuple[str, str] | None], ctx: Any) -> tuple[str, str] | None:  # noqa: ANN401
    """Return the help line of an argument without its type, a Python name."""
    line = record(ctx)
    return line and (re.sub(r" <.*>$", "", line[0]), line[1])


@dataclass(frozen=True, slots=True)
class MadeBy:
    """Marks a parameter of a command that is built from several flags: the parameters of `make`, in that order."""

    make: Callable[..., object]


def flag_by_flag(command: Callable[..., int]) -> Callable[..., int]:
    """Return the command with each `MadeBy` parameter replaced by the flags it is built from."""
    own = inspect.signature(command, eval_str=True)
    makers = {name: mark.make for name, parameter in own.parameters.items() for mark in get_args(parameter.annotation)
              if isinstance(mark, MadeBy)}
    flags = {name: inspect.signature(make, eval_str=True).parameters for name, make in makers.items()}

    @wraps(command)
    def called(**given: object) -> int:
        for name, make in makers.items():
            given[name] = make(**{flag: given.pop(flag) for flag in flags[name]})
        return command(**given)

    called.__signature__ = own.replace(parameters=[  # type: ignore[attr-defined]
        flag.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in own.parameters.items() for flag in flags.get(name, {name: parameter}).values()])
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


def complete_contexts(incomplete: str) -> list[str]:
    """Return the names of contexts that begin with `incomplete`; none if the file cannot be read."""
    from fleetctl.workflow.contexts import config_path, read_contexts  # slow, and every command imports this module

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


def _with_later_options(command: Any) -> Any:  # noqa: ANN401  Click's Command, which typer vendors
    """Add --color to a command and its subcommands, and --context to those with --address; returns the command."""
    at = next((index for index, parameter in enumerate(command.params) if parameter.name == "address"), None)
    later = typer.Typer(add_completion=False)

    @later.command()
    def takes(context: _LaterOption = None, color: _LaterColor = None) -> None: ...

    context, color = get_command(later).params[:2]
    if at is not None:
        command.params.insert(at + 1, context)
    command.params.append(color)
    for below in getattr(command, "commands", {}).values():
        _with_later_options(below)
    return command


NDIFS_FLAGS = {"--ray-address": "--address"}
FORMATS = frozenset(("json", "jsonl", "yaml", "wide", "table", "markdown", "html", "text", "name"))
OTHERS_FLAGS = {
    "--dry-run": "`fleetctl plan` shows what an apply would do, and changes nothing",
    "--auto-approve": "--yes proceeds without confirmation",
    "--watch": "`watch -n 10 fleetctl ...` repeats a command; an apply follows its replicas by itself",
    "--output": "--format sets the format",
    "--json": "--format json prints it as JSON",
    "--filename": "-f or --file names a fleet file",
    "--destroy": "a plan or an apply removes nothing; `fleetctl evict MODEL/ID` ends one replica",
    "-n": "--namespace names the Ray namespace",
    "--inventory": "this command needs a running cluster; `plan`, `capacity`, `what-if` and `map` take a snapshot",
}
OTHERS_FLAGS |= {"-w": OTHERS_FLAGS["--watch"], "-o": OTHERS_FLAGS["--output"], "--prune": OTHERS_FLAGS["--destroy"]}
"""Flags of kubectl and Terraform, each with a hint to ours; OTHERS_COMMANDS likewise."""
OTHERS_COMMANDS = {
    "get": "`fleetctl status` shows replicas, `fleetctl inventory` nodes, `fleetctl endpoints` addresses",
    "describe": "`fleetctl status MODEL` shows replicas, `fleetctl explain FIELD` a field of the fleet file",
    "delete": "`fleetctl evict MODEL/ID` ends one replica; nothing else is ever removed",
    "update": "`fleetctl replace MODEL` updates a model to the file's spec, `fleetctl rollout` all that are outdated",
    "rollback": "revert the fleet file in git, then `fleetctl replace MODEL` brings the former spec back",
    "move": "`fleetctl drain NODE` replaces its replicas elsewhere; nothing else moves a running replica",
    "config": "`fleetctl context list` lists clusters, `fleetctl context use NAME` chooses one",
    "start": "`fleetctl apply` starts what the fleet file wants, `fleetctl deploy MODEL` one model of it",
    "edit": "edit the fleet file; `fleetctl propose` changes numbers in it, on a branch for review",
    "cancel": "`fleetctl stop` ends a running apply; the replicas it created stay",
    "unpause": "`fleetctl resume` allows new replicas of a model or a fleet again",
    "lint": "`fleetctl validate` checks fleet files, `fleetctl fmt --check` their formatting",
    "help": "`fleetctl --help` lists the commands, `fleetctl COMMAND --help` explains one",
    "version": "`fleetctl --version` prints it",
    "top": "`fleetctl inventory` shows what is in use on each node",
    "ps": "`fleetctl status` shows every replica",
}
OTHERS_COMMANDS |= dict.fromkeys(
    ("destroy", "down", "remove", "rm", "undeploy", "kill", "terminate"), OTHERS_COMMANDS["delete"])
OTHERS_COMMANDS |= dict.fromkeys(("run", "create", "launch", "sync", "reconcile"), OTHERS_COMMANDS["start"])
OTHERS_COMMANDS |= {"upgrade": OTHERS_COMMANDS["update"], "undo": OTHERS_COMMANDS["rollback"],
                    "migrate": OTHERS_COMMANDS["move"], "up": OTHERS_COMMANDS["update"]}
OTHERS_COMMANDS |= dict.fromkeys(("ls", "list", "replicas", "models", "state"), OTHERS_COMMANDS["get"])
OTHERS_COMMANDS |= {"check": OTHERS_COMMANDS["lint"], "nodes": OTHERS_COMMANDS["top"],
                    "abort": OTHERS_COMMANDS["cancel"]}


def _as_ours(arguments: Sequence[str], parameters: Sequence[Any]) -> list[str]:
    """Return the arguments with NDIF's spellings of flags as ours; docs/verbs.md lists them.

    Raises UsageError for a long flag with one dash, a format after -o, or a flag of other tools. Unrefused, `-out=x`
    would write a file `ut=x`, and `-o json` a file `json`. `parameters` = those of the command: a flag whose value is
    optional, and which no number follows, gets an empty value.
    """
    ours = {name: str(parameter.metavar) for parameter in parameters for name in parameter.opts}
    words = list(arguments)
    for index, argument in enumerate(arguments):
        if argument == "--":
            break
        flag, equals, value = argument.partition("=")
        if flag not in ours and (meant := NDIFS_FLAGS.get(flag, "")) in ours:
            words[index] = f"{meant}{equals}{value}"
            continue
        if ours.get(argument, "").startswith("[") and not "".join(arguments[index + 1:index + 2]).isdecimal():
            words[index] = f"{argument}="
        long = f"-{flag}"
        if flag[:1] == "-" and flag[1:2] not in ("", "-") and len(flag) > 2 and (long in ours or long in OTHERS_FLAGS):
            raise UsageError(f"{argument}: a long flag takes two dashes",
                             hint=quote(f"{long}{equals}{value}") if long in ours else OTHERS_FLAGS[long])
        if flag in ours and len(flag) == 2 and equals:
            raise UsageError(f"{argument}: a short flag takes its value without =", hint=f"{flag} {quote(value)}")
        if flag in OTHERS_FLAGS and flag not in ours:
            follows = OTHERS_FLAGS[flag] is OTHERS_FLAGS["--watch"] and "--follow" in ours
            raise UsageError(f"there is no flag {flag} here", hint="--follow" if follows else OTHERS_FLAGS[flag])
        after = argument[2:] or "".join(arguments[index + 1:index + 2])
        if argument[:2] == "-o" and after in FORMATS:
            raise UsageError(f"-o names a file to write, and {after} is a format",
                             hint=f"--format {after} prints that format; -o ./{after} writes a file of this name")
    return words
