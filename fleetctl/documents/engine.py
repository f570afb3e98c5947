"""The engine of one member: its command, environment and probes, passed through verbatim."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fleetctl.documents.base import MAPPING, TEXT, TEXT_OR_MAPPING, Authored, OneOf, PathFromRoot, Text, full_match
from fleetctl.documents.quantity import Seconds

Port = Annotated[int, Field(ge=1, le=65535)]
EnvName = Annotated[
    str,
    full_match(r"[^=\0]+", "bad_env_name", "{found} is not an environment variable name",
               "a non-empty name without '='"),
    full_match(r"(?s)(?!FLEETCTL_).*", "reserved_env_name", "{found} is set by fleetctl itself",
               "any name that does not begin with FLEETCTL_")]


class FromNode(Authored):
    """A value read from the node's environment when the engine starts, so that no file holds it."""

    from_node: Annotated[str, Field(min_length=1, description="the name of the variable in the node's environment")]


class HttpProbe(Authored):
    """Healthy when a GET answers 200 to 399."""

    path: PathFromRoot = Field("/", description="the path of the GET; default /")
    port: Port | None = Field(None, description="default: the member's own FLEETCTL_PORT")


class TcpProbe(Authored):
    """Healthy when the port accepts a connection."""

    port: Port | None = Field(None, description="default: the member's own FLEETCTL_PORT")


class ExecProbe(Authored):
    """Healthy when the command exits 0; it runs in the engine's environment and working directory."""

    command: Annotated[list[Text], Field(min_length=1, description="program and arguments")]


class Probe(OneOf):
    """Exactly one of http, tcp and exec, with its period, timeout and threshold."""

    KINDS = ("http", "tcp", "exec")
    ERROR = "probe_kind"

    http: HttpProbe | None = Field(None, description="healthy when a GET answers 200 to 399")
    tcp: TcpProbe | None = Field(None, description="healthy when the port accepts a connection")
    exec: ExecProbe | None = Field(None, description="healthy when the command exits 0")
    period: Seconds = Field(1, description="time between two attempts; default 1s")
    timeout: Seconds = Field(5, description="the time limit of one attempt; default 5s")
    failure_threshold: Annotated[int, Field(ge=1, le=1000)] = Field(
        3, description="liveness only: failures in a row before the engine counts as down")


class Engine(Authored):
    """The engine's command line, environment and probes; fleetctl adds no flags."""

    command: Annotated[list[Text], Field(min_length=1, description="program and leading arguments")]
    args: list[Text] = Field(default_factory=list, description="further arguments, appended verbatim")
    env: dict[EnvName, Annotated[
        Annotated[Text, TEXT] | Annotated[FromNode, MAPPING], TEXT_OR_MAPPING
    ]] = Field(
        default_factory=dict, description='extra environment variables; numbers and booleans must be quoted ("1")')
    workdir: PathFromRoot | None = Field(None, description="working directory; default: a new, empty folder")
    readiness: Probe | None = Field(None, description="default: ready once alive for 5 s")
    liveness: Probe | None = Field(None, description="default: alive while the process runs")
