"""`fleetctl context`: clusters by name, in the user's configuration file. None of its commands contacts a cluster."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from fleetctl.cli import flags
from fleetctl.cli.commands import command_app, complete_contexts, epilog
from fleetctl.cli.console import say, show_report, write_result
from fleetctl.cli.process import this_invocation
from fleetctl.documents.canonical import indented_json
from fleetctl.errors import FleetctlError, UsageError
from fleetctl.inventory.access import checked_address
from fleetctl.render.report.model import Column, Report, Table
from fleetctl.render.visible import visible
from fleetctl.workflow.contexts import (
    LIST_OR_ADD,
    Context,
    Contexts,
    change_contexts,
    config_path,
    find_context,
    named_context,
    read_contexts,
)
from fleetctl.workflow.invocation import ADDRESS_VARIABLE, Invocation

EPILOG = epilog(
    "fleetctl context set prod --address http://ray-head:8265",
    "fleetctl context use prod",
    "fleetctl plan -f fleets/prod.yaml --context staging",
    "fleetctl context list",
    exit_codes="0 done, 1 error, or there is no such context, 64 usage")
SET_EPILOG = epilog(
    "fleetctl context set lab --address http://ray-head:8265 --namespace research",
    "fleetctl context set lab --token-command 'gcloud auth print-access-token'",
    "fleetctl context set lab --header X-Api-Key=PROXY_KEY",
    exit_codes="0 written, 1 error, 64 usage")
COLUMNS = (Column("current", "current"), Column("name", "context", name=True), Column("address", "address", name=True),
           Column("namespace", "namespace", name=True, terminal="filled"), Column("sends", "sends", terminal="filled"))

NameArgument = Annotated[str, typer.Argument(
    metavar="NAME", show_default=False, autocompletion=complete_contexts, help="The context.")]
app = command_app()


@app.callback(epilog=EPILOG)
def context() -> None:
    """Name clusters, and choose the one that commands use.

    A command uses the first of these that is set: --address, --context, FLEETCTL_ADDRESS, FLEETCTL_CONTEXT,
    spec.cluster.address in the fleet file, the current context. Contexts are in fleetctl/config.yaml below
    XDG_CONFIG_HOME, usually ~/.config. The file holds no secrets, only where to find them.
    """


@app.command("list")
def list_contexts(output_format: flags.Format = "table") -> int:
    """List the contexts; * marks the current one."""
    path, contexts = _read(this_invocation())
    if output_format == "json":
        write_result(indented_json(contexts))
    elif not contexts.contexts:
        say("note", f"there are no contexts in {path}; {LIST_OR_ADD.partition(', ')[2]}")
    else:
        rows = tuple(("*" if name == contexts.current else "", name, one.address, one.namespace or "",
                      tuple(_sent(one))) for name, one in contexts.contexts.items())
        show_report(Report(kind="answer", identity="contexts", title="Contexts", conclusion="",
                           tables=(Table("context", "Contexts", COLUMNS, rows),)))
    return 0


@app.command("show")
def show_context(name: Annotated[str | None, typer.Argument(
        metavar="NAME", show_default=False, autocompletion=complete_contexts,
        help="The context. [default: the one that commands use now]")] = None) -> int:
    """Show one context, and whether FLEETCTL_ADDRESS overrides it."""
    invocation = this_invocation()
    path, contexts = _read(invocation)
    if name is None:
        chosen = named_context(invocation)
        name = chosen.name if chosen else contexts.current
    if name is None:
        raise FleetctlError("there is no current context", hint="`fleetctl context use NAME` chooses one")
    one = find_context(contexts, name)
    facts = {"context": f"{name}{' (current)' if name == contexts.current else ''}", "address": one.address,
             "namespace": one.namespace, "sends": "\n           ".join(_sent(one)), "file": str(path)}
    write_result("".join(f"{label:9}  {text}\n" for label, text in facts.items() if text))
    if invocation.environ.get(ADDRESS_VARIABLE) and not invocation.context:
        say("note", f"{ADDRESS_VARIABLE} is set and overrides every context that --context does not name")
    return 0


@app.command("use")
def use_context(name: NameArgument) -> int:
    """Make a context the current one."""
    path, contexts = _read(this_invocation())
    find_context(contexts, name)
    change_contexts(path, {"current": name})
    say("context", f"{name} is now the current context")
    return 0


@app.command("set", epilog=SET_EPILOG)
def set_context(
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="The context to add or change.")],
    url: Annotated[str | None, flags.option(
        "--address", metavar="URL", help=flags.ADDRESS_HELP)] = None,
    namespace: Annotated[str | None, flags.option(
        "--namespace", metavar="NAME", help=flags.NAMESPACE_HELP)] = None,
    token_env: Annotated[str | None, flags.option(
        "--token-env", metavar="VARIABLE", help="Environment variable that holds the cluster's token.")] = None,
    token_command: Annotated[str | None, flags.option(
        "--token-command", metavar="COMMAND", help="Command that prints the cluster's token; run without a shell.",
    )] = None,
    header: Annotated[list[str] | None, flags.option(
        "--header", metavar="NAME=VARIABLE",
        help="Header for a proxy, and the environment variable that holds its value; repeatable.")] = None,
    client_cert: Annotated[str | None, flags.option(
        "--client-cert", metavar="PATH", help="PEM file with a client certificate for a proxy.")] = None,
    client_key: Annotated[str | None, flags.option(
        "--client-key", metavar="PATH", help="PEM file with the key of that certificate, if separate.")] = None,
) -> int:
    """Add a context, or change the given settings of one.

    An empty value removes a setting, as in `--namespace ''`. The first context becomes the current one.
    """
    if not name:
        raise UsageError("a context needs a name")
    if token_env and token_command:
        raise UsageError("give either --token-env or --token-command")
    path, contexts = _read(this_invocation())
    given = {
        "address": checked_address(url) if url is not None else None, "namespace": namespace,
        "token": _token(token_env, token_command), "headers": _headers(header), "clientCert": _absolute(client_cert),
        "clientKey": _absolute(client_key)}
    changes = {key: value or None for key, value in given.items() if value is not None}
    if name not in contexts.contexts and url is None:
        raise UsageError(f"there is no context {name}, and a new one needs an address", hint="add --address URL")
    changed = change_contexts(path, changes, "contexts", name)
    if not contexts.contexts:
        changed = change_contexts(path, {"current": name})
    say("context", f"{name} is saved in {path}{', and is current' if changed.current == name else ''}")
    return 0


@app.command("unset")
def unset_context(name: NameArgument) -> int:
    """Remove a context. The cluster is not contacted."""
    path, contexts = _read(this_invocation())
    find_context(contexts, name)
    change_contexts(path, {name: None}, "contexts")
    if contexts.current == name:
        change_contexts(path, {"current": None})
        say("note", "there is no current context anymore; `fleetctl context use NAME` chooses one")
    say("context", f"{name} is removed from {path}")
    return 0


def _read(invocation: Invocation) -> tuple[Path, Contexts]:
    path = config_path(invocation.environ, invocation.home)
    return path, read_contexts(path)


def _sent(one: Context) -> Iterator[str]:
    """Yield a line for each secret or certificate sent to the cluster, with its source."""
    if one.token:
        yield f"token from {visible(str(one.token))}"
    yield from (f"header {visible(name)} from {visible(str(source))}" for name, source in one.headers.items())
    if one.client_cert:
        yield f"certificate {visible(one.client_cert)}"


def _token(variable: str | None, command: str | None) -> dict[str, object] | None:
    if command:
        try:
            return {"command": shlex.split(command)}
        except ValueError as error:
            raise UsageError(f"--token-command: {str(error).lower()}") from None
    if variable:
        return {"env": _variable("--token-env", variable)}
    return {} if "" in (variable, command) else None  # an empty value removes the token


def _headers(given: list[str] | None) -> dict[str, dict[str, str]] | None:
    if given is None:
        return None
    pairs = [pair.partition("=") for pair in given if pair]
    return {name: {"env": _variable("--header NAME=VARIABLE", variable)} for name, _, variable in pairs}


def _variable(flag: str, given: str) -> str:
    """Return the name of a variable. Raises UsageError, without the text: it may be a secret given by mistake."""
    if not given.isidentifier():
        raise UsageError(f"{flag}: not the name of an environment variable",
                         hint="give the name of the variable that holds the secret, never the secret itself")
    return given


def _absolute(path: str | None) -> str | None:
    return str(Path(path).expanduser().absolute()) if path else path
