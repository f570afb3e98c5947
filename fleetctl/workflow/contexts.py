"""Contexts: named clusters of the user's configuration file. Which cluster a command is for.

A chosen context acts through environment variables. Everything in it belongs to its own address: if another address is
used, no part of the context is, so its token goes nowhere else.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from fleetctl.documents.fleet import Cluster
from fleetctl.documents.names import did_you_mean
from fleetctl.errors import FleetctlError, InventoryError, UsageError
from fleetctl.inventory.access import (
    CERTIFICATE_VARIABLE,
    DASHBOARD_PORT,
    HEADERS_VARIABLE,
    KEY_VARIABLE,
    TOKEN_VARIABLE,
    without_secret,
)
from fleetctl.workflow.contexts_file import Context, Contexts, SecretSource, config_path, read_contexts
from fleetctl.workflow.invocation import ADDRESS_VARIABLE, CONTEXT_VARIABLE, NAMESPACE_VARIABLE, Invocation, Where

COMMAND_TIMEOUT_S = 60.0
LIST_OR_ADD = "`fleetctl context list` shows all, `fleetctl context set NAME --address URL` adds one"


@dataclass(frozen=True, slots=True)
class Chosen:
    """The context in use. `named` = chosen by --context or FLEETCTL_CONTEXT; otherwise it is the file's current one."""

    name: str
    context: Context
    named: bool


def find_context(contexts: Contexts, name: str) -> Context:
    """Return the context of that name; raises FleetctlError with the nearest name if there is none."""
    if name not in contexts.contexts:
        raise FleetctlError(f"there is no context {name}", hint=did_you_mean(name, contexts.contexts) or LIST_OR_ADD)
    return contexts.contexts[name]


def named_context(invocation: Invocation) -> Chosen | None:
    """Return the context that --context or FLEETCTL_CONTEXT names; raises FleetctlError if it does not exist."""
    name = invocation.context or invocation.environ.get(CONTEXT_VARIABLE)
    if not name:
        return None
    return Chosen(name, find_context(read_contexts(config_path(invocation.environ, invocation.home)), name), named=True)


def context_for(invocation: Invocation, address: str | None, written: str | None) -> Chosen | None:
    """Return the context that determines the cluster; None if --address, FLEETCTL_ADDRESS or a file does.

    The first of these that is given counts: --address, --context, FLEETCTL_ADDRESS, FLEETCTL_CONTEXT, `written` (the
    address in a file), the current context. A context also counts if --address (for --context) or the file (for the
    current one) has the same address.
    """
    if not invocation.context and (address or invocation.environ.get(ADDRESS_VARIABLE)):
        return None
    if (chosen := named_context(invocation)) is not None:
        return chosen if address is None or same_cluster(address, chosen.context.address) else None
    contexts = read_contexts(config_path(invocation.environ, invocation.home))
    if not contexts.current:
        return None
    current = find_context(contexts, contexts.current)
    return Chosen(contexts.current, current, named=False) if written in (None, current.address) else None


def given_address(invocation: Invocation, flag: str | None) -> str | None:
    """Return the address that the user gives: by --address, FLEETCTL_ADDRESS, or the name of a context."""
    variable = invocation.environ.get(ADDRESS_VARIABLE) if not invocation.context else None
    if address := flag or variable:
        return address
    chosen = named_context(invocation)
    return (chosen.context.address or None) if chosen else None


def refuse_two_clusters(invocation: Invocation, flag: str | None) -> None:
    """Raise UsageError if --context names another cluster than --address or FLEETCTL_ADDRESS.

    For verbs that take something away: the one that does not count may be the one that was meant.
    """
    if not invocation.context or (chosen := named_context(invocation)) is None:
        return
    for name, other in (("--address", flag), (ADDRESS_VARIABLE, invocation.environ.get(ADDRESS_VARIABLE))):
        if other and not same_cluster(other, chosen.context.address):
            raise UsageError(f"--context {chosen.name} is {chosen.context.address}, but {name} is "
                             f"{without_secret(other)}; nothing was done",
                             hint="this command takes something away, so name one cluster only: leave out --context, "
                                  f"or {'unset' if name == ADDRESS_VARIABLE else 'leave out'} {name}")


def same_cluster(one: str, other: str) -> bool:
    """Return whether two addresses are the same, however they are written; case counts in the path alone."""
    return _comparable(one) == _comparable(other)


def _comparable(address: str) -> str:
    whole = address if "://" in address or not address.endswith(DASHBOARD_PORT) else f"http://{address}"
    scheme, between, rest = whole.rstrip("/").rpartition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{between}{host}".lower() + slash + path


def resolve_namespace(invocation: Invocation, where: Where, cluster: Cluster) -> str:
    """Return the Ray namespace of the replicas.

    In this order: --namespace, the context of --context, FLEETCTL_NAMESPACE, that of FLEETCTL_CONTEXT,
    spec.cluster.namespace, the current context.
    """
    variable = invocation.environ.get(NAMESPACE_VARIABLE)
    if given := where.namespace or ("" if invocation.context else variable):
        return given
    chosen = context_for(invocation, where.address, cluster.address)
    counts = chosen and (chosen.named or "namespace" not in cluster.model_fields_set)
    return (chosen.context.namespace if chosen and counts else None) or variable or cluster.namespace


def variables_of(chosen: Chosen, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables of a context, with its secrets; raises InventoryError.

    The environment's own token or certificate goes to the context's address only if the context names none.
    """
    context, variables = chosen.context, {ADDRESS_VARIABLE: chosen.context.address}
    if context.token:
        variables[TOKEN_VARIABLE] = _secret(context.token, f"the token of context {chosen.name}", environ)
    if context.headers:
        variables[HEADERS_VARIABLE] = json.dumps({
            name: _secret(source, f"the header {name} of context {chosen.name}", environ)
            for name, source in context.headers.items()})
    if context.client_cert:
        variables |= {CERTIFICATE_VARIABLE: context.client_cert, KEY_VARIABLE: context.client_key or ""}
    return variables


def _secret(source: SecretSource, what: str, environ: Mapping[str, str]) -> str:
    """Return the secret; raises InventoryError, which never shows the secret or a command's output."""
    if source.env:
        if value := environ.get(source.env, "").strip():
            return value
        raise InventoryError(f"{what} comes from the variable {source.env}, which is not set")
    command = source.command or []
    try:
        found = subprocess.run(command, env=dict(environ), stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
                               timeout=COMMAND_TIMEOUT_S, check=True)
        lines = found.stdout.strip().splitlines()
        if len(lines) == 1:
            return lines[0]
        why = f"it printed {len(lines)} lines instead of one"
    except subprocess.CalledProcessError as error:
        why = f"it ended with exit code {error.returncode}"
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
    raise InventoryError(f"{what} comes from the command {command[0]}, but {why}")
