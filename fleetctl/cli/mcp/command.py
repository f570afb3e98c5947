"""`fleetctl mcp`: answers questions of agents and editors about a fleet, on standard input and output. Read-only."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from fleetctl.cli import flags
from fleetctl.cli.commands import command_app, complete_contexts, not_empty
from fleetctl.cli.process import this_invocation
from fleetctl.errors import FleetctlError, UsageError
from fleetctl.problem import as_utf8

app = command_app(
    "fleetctl mcp -f fleets/prod.yaml",
    "fleetctl mcp -f fleets/ --context prod --context lab   # a client chooses",
    "fleetctl mcp -f fleets/ --inventory snapshot.json      # without a cluster",
    "claude mcp add fleet -- fleetctl mcp -f fleets/        # one client of many",
    exit_codes="0 the client has ended, 1 error before the first message, 64 usage, 130 Ctrl-C, 143 terminated")
EXTRA = "mcp"


def _names(values: list[str] | None) -> list[str] | None:
    return [not_empty(value) or "" for value in values] if values else values


@app.command()
def mcp(
    *,
    files: flags.DiskFiles,
    contexts: Annotated[list[str] | None, flags.option(
        "--context", metavar="NAME", autocompletion=complete_contexts, callback=_names,
        help="Context (named cluster) that a client may ask about; repeatable, and the first is the default.")] = None,
    dashboard: Annotated[str | None, flags.option(
        "--address", metavar="URL", callback=not_empty,
        help=f"{flags.ADDRESS_HELP} [env var: FLEETCTL_ADDRESS; default: as for other commands]")] = None,
    namespace: flags.Namespace = None,
    inventory: Annotated[str | None, flags.option(
        "--inventory", metavar="FILE", help="Read this inventory document instead of a cluster.")] = None,
    limit_s: Annotated[float, flags.option(
        "--time-limit", metavar="DURATION", parser=flags.expiry_duration,
        help="How long one answer may take. [default: 2m]")] = 120,
) -> int:
    """Answer an agent's questions about a fleet; read-only.

    Speaks the Model Context Protocol on standard input and output; a client starts it. The tools are plan, why,
    capacity, what_if, diff and status. They read the fleet files and clusters named here, and nothing else; no tool
    starts, ends or changes anything. Needs the extra `mcp`.
    """
    if find_spec("mcp") is None:
        raise FleetctlError(f"this needs the extra `{EXTRA}`, which is not installed",
                            hint=f"install fleetctl with it, as in: pipx install '.[{EXTRA}]'")
    if "-" in (*files, inventory):
        raise UsageError("standard input is for the client's messages", hint="name a file")
    named = [flag for flag, given in (("--context", contexts), ("--address", dashboard), ("--inventory", inventory))
             if given]
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)} name different sources", hint="give one of them")
    for path in (*files, *([inventory] if inventory else ())):
        if not Path(path).exists():
            raise FleetctlError(f"{path}: no such file or folder")
    folder = str(Path.cwd())
    if as_utf8(folder) != folder:
        raise FleetctlError(f"the working folder {folder!r} has a name that is not UTF-8 text")
    invocation = this_invocation()
    contexts = list(dict.fromkeys(contexts or ([invocation.context] if invocation.context else [])))
    if contexts:
        from fleetctl.workflow.contexts import config_path, find_context, read_contexts

        known = read_contexts(config_path(invocation.environ, invocation.home))
        for name in contexts:
            find_context(known, name)
    try:
        from fleetctl.cli.mcp.server import serve  # the SDK
        from fleetctl.cli.mcp.tools import Started
    except ImportError as error:
        raise FleetctlError(f"the installed package mcp is not one that this version knows: {error}",
                            hint=f"install fleetctl with its extra, as in: pipx install '.[{EXTRA}]'") from None
    return serve(Started(folder=folder, files=files, contexts=contexts, inventory=inventory,
                         address=dashboard, namespace=namespace), limit_s)
