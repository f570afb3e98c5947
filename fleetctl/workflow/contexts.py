"""Contexts: named clusters of the user's configuration file. Which cluster a command is for.

A chosen context acts through environment variables. Everything in it belongs to its own address: if another address is
used, no part of the context is, so its token goes nowhere else. The file says where secrets come from, and holds none;
it is changed value by value in place, comments kept.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from fleetctl.documents.base import Authored
from fleetctl.documents.fleet import Cluster
from fleetctl.documents.names import did_you_mean
from fleetctl.errors import DocumentError, FleetctlError, InventoryError, UsageError
from fleetctl.fleetfile.file_tree import read_whole
from fleetctl.fleetfile.sources import SourceBytes
from fleetctl.inventory.access import (
    CERTIFICATE_VARIABLE,
    DASHBOARD_PORT,
    HEADERS_VARIABLE,
    KEY_VARIABLE,
    TOKEN_VARIABLE,
    without_secret,
)
from fleetctl.workflow.invocation import ADDRESS_VARIABLE, CONTEXT_VARIABLE, NAMESPACE_VARIABLE, Invocation, Where
from fleetctl.workflow.output_files import real_path, write_file

COMMAND_TIMEOUT_S = 60.0
LIST_OR_ADD = "`fleetctl context list` shows all, `fleetctl context set NAME --address URL` adds one"
Text = Annotated[str, Field(min_length=1)]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class SecretSource(Authored):
    """Where a secret comes from: an environment variable, or the first line of a command's output."""

    env: Variable | None = None
    command: Annotated[list[Text], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _one_source(self) -> SecretSource:
        if (self.env is None) == (self.command is None):
            raise PydanticCustomError("secret_source", "expected env: VARIABLE or command: [PROGRAM, ARGUMENT]")
        return self

    def __str__(self) -> str:
        return f"variable {self.env}" if self.env else f"command {' '.join(self.command or ())}"


class Context(Authored):
    """One cluster: its address, and the credentials and headers to send."""

    address: Text
    namespace: Text | None = None
    token: SecretSource | None = None
    headers: dict[str, SecretSource] = Field(default_factory=dict)
    client_cert: Text | None = None
    client_key: Text | None = None


class Contexts(Authored):
    """The whole file; `current` names the context to use if nothing else names a cluster."""

    current: Text | None = None
    contexts: dict[Text, Context] = Field(default_factory=dict)


def config_path(environ: Mapping[str, str], home: Path) -> Path:
    """Return the configuration file, which need not exist."""
    return user_folder(environ, home, "XDG_CONFIG_HOME", ".config") / "config.yaml"


def user_folder(environ: Mapping[str, str], home: Path, variable: str, usual: str) -> Path:
    """Return our folder below an XDG base directory; `usual` is that directory's default, relative to `home`."""
    named = environ.get(variable, "")
    return (Path(named) if named.startswith("/") else home / usual) / "fleetctl"


def read_contexts(path: Path) -> Contexts:
    """Return the contexts in the file, none if there is no file; raises DocumentError for a damaged file."""
    return _checked(_values(_bytes_of(path), path), path)


def change_contexts(path: Path, changes: Mapping[str, object], *below: str) -> Contexts:
    """Write new values into the file, or into the mapping `below` these keys; None removes a key. Comments stay.

    Returns the changed contexts; raises DocumentError and writes nothing if they would not be valid.
    """
    from fleetctl.fleetfile.format import with_values  # only these commands write

    data = _bytes_of(path)
    before = _values(data, path)
    _checked(before, path)
    after = json.loads(json.dumps(before))  # what aliases share is one value in `before`
    part = after
    for key in below:
        part = part.setdefault(key, {})
    part.update(changes)
    for key in [key for key, value in changes.items() if value is None]:
        del part[key]
    wanted = _checked(after, path)
    text = with_values(data.decode("utf-8-sig"), before, after)
    if text is None or _checked(_values(text.encode(), path), path) != wanted:
        raise DocumentError(f"{path} cannot be changed without changing more than was asked for",
                            hint="change it by hand")
    write_file(real_path(path), text, mode=0o600, make_folder=True)
    return wanted


def _bytes_of(path: Path) -> bytes:
    try:
        return read_whole(path)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise DocumentError(f"{path} cannot be read: {error.strerror or error}") from None


def _values(data: bytes, path: Path) -> Any:  # noqa: ANN401  any YAML value
    from fleetctl.fleetfile.compose import compose_bytes  # loads YAML, which a cluster without a file does not need

    composed = compose_bytes(SourceBytes(str(path), data))
    for problem in composed.problems:
        raise DocumentError(f"{path}:{problem.line}:{problem.column}: {problem.message}")
    if len(composed.documents) > 1:
        raise DocumentError(f"{path} holds {len(composed.documents)} documents", hint="one is allowed")
    return composed.documents[0].value if composed.documents else {}


def _checked(raw: object, path: Path) -> Contexts:
    try:
        return Contexts.model_validate(raw)
    except ValidationError as error:
        # no value is shown: it may be a secret
        problems = [f"{'.'.join(map(str, item['loc'])) or 'the file'}: {item['msg']}"
                    for item in error.errors(include_url=False, include_input=False)]
        raise DocumentError(f"{path} is not a configuration of fleetctl: {'; '.join(problems[:5])}",
                            hint="fix it, or write it with `fleetctl context set`") from None


@dataclass(frozen=True, slots=True)
class ChosenContext:
    """The context in use. `named` = chosen by --context or FLEETCTL_CONTEXT; otherwise it is the file's current one."""

    name: str
    context: Context
    named: bool


def find_context(contexts: Contexts, name: str) -> Context:
    """Return the context of that name; raises FleetctlError with the nearest name if there is none."""
    if name not in contexts.contexts:
        raise FleetctlError(f"there is no context {name}", hint=did_you_mean(name, contexts.contexts) or LIST_OR_ADD)
    return contexts.contexts[name]


def named_context(invocation: Invocation) -> ChosenContext | None:
    """Return the context that --context or FLEETCTL_CONTEXT names; raises FleetctlError if it does not exist."""
    name = invocation.context or invocation.environ.get(CONTEXT_VARIABLE)
    if not name:
        return None
    contexts = read_contexts(config_path(invocation.environ, invocation.home))
    return ChosenContext(name, find_context(contexts, name), named=True)


def context_for(invocation: Invocation, address: str | None, written: str | None) -> ChosenContext | None:
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
    return ChosenContext(contexts.current, current, named=False) if written in (None, current.address) else None


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


def variables_of(chosen: ChosenContext, environ: Mapping[str, str]) -> dict[str, str]:
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
        ended = subprocess.run(command, env=dict(environ), stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
                               timeout=COMMAND_TIMEOUT_S, check=True)
        lines = ended.stdout.strip().splitlines()
        if len(lines) == 1:
            return lines[0]
        why = f"it printed {len(lines)} lines instead of one"
    except subprocess.CalledProcessError as error:
        why = f"it ended with exit code {error.returncode}"
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
    raise InventoryError(f"{what} comes from the command {command[0]}, but {why}")
