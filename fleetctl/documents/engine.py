"""The engine of a member in a fleet file: its command line, environment, ports, probes, caches, and how it is ended."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from fleetctl.documents.base import (
    MAPPING,
    TEXT,
    TEXT_OR_MAPPING,
    Authored,
    DnsLabel,
    OneOf,
    PathFromRoot,
    Text,
    full_match,
    refusal,
)
from fleetctl.documents.quantity import Seconds
from fleetctl.documents.weights import is_absent

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


PERIODS_S = {"readiness": 1.0, "liveness": 10.0}
"""The periods of probes that do not set one. Liveness had 1 s once: that is in hashes; see fleetfile/resolved.py."""


class Probe(OneOf):
    """Exactly one of http, tcp and exec, with its period, timeout and threshold."""

    KINDS = ("http", "tcp", "exec")
    ERROR = "probe_kind"

    http: HttpProbe | None = Field(None, description="healthy when a GET answers 200 to 399")
    tcp: TcpProbe | None = Field(None, description="healthy when the port accepts a connection")
    exec: ExecProbe | None = Field(None, description="healthy when the command exits 0")
    period: Seconds | None = Field(
        None, description="time between two attempts; default: 1s for readiness, 10s for liveness. A ready engine is "
                          "asked for its readiness every 10s, or less often")
    timeout: Seconds = Field(5, description="the time limit of one attempt; default 5s. For the readiness of a ready "
                                            "engine it is at least 5s")
    failure_threshold: Annotated[int, Field(ge=1, le=1000)] = Field(
        3, description="failures in a row before a ready engine counts as not ready (readiness) or down (liveness)")

    @property
    def port(self) -> int | None:
        """The fixed port; None = the member's own, or no port at all."""
        return next((getattr(check, "port", None) for kind in self.KINDS if (check := getattr(self, kind))), None)


def _once_each(names: list[str], *, code: str, what: str) -> list[str]:
    if len(set(names)) < len(names):
        raise refusal(code, f"{what} is named twice", names, "each name once")
    return names


_CACHE_NAME = r"[A-Za-z_][A-Za-z0-9_]{0,127}"
_NO_FOLDER = ("(PATH|PYTHONPATH|PYTHONHOME|LD_PRELOAD|LD_LIBRARY_PATH|CUDA_DEVICE_ORDER|ONEAPI_DEVICE_SELECTOR|"
              "[A-Z_]+_VISIBLE_(DEVICES|MODULES|CORES|CHIPS))")
"""The variables with which an engine finds its cards, programs and libraries: with a folder there it does not start."""
CacheName = Annotated[
    str, full_match(_CACHE_NAME, "bad_cache_name", "{found} is not {allowed}",
                    "the name of an environment variable: letters, digits and _"),
    full_match(r"(?!FLEETCTL_).*", "reserved_env_name", "{found} is set by fleetctl itself",
               "any name that does not begin with FLEETCTL_"),
    full_match(rf"(?!{_NO_FOLDER}$).*", "no_cache_name", "{found} names no folder of caches: an engine finds its "
               "cards, programs or libraries with it", "the variable of a cache, such as VLLM_CACHE_ROOT"),
    Field(json_schema_extra={"pattern": f"^(?!FLEETCTL_)(?!{_NO_FOLDER}$){_CACHE_NAME}$"})]
"""It is the name of a folder, too."""


MAX_GRACE_S = 3600
Signal = Literal["SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP", "SIGUSR1", "SIGUSR2"]


def _check_grace(seconds: float) -> float:
    if seconds > MAX_GRACE_S:
        raise refusal("absurd_quantity", "{found} is out of range; expected {allowed}", seconds, "at most 1h")
    return seconds


class Stop(Authored):
    """How an engine is ended: its first process gets a signal, once, and after the grace period all are killed.

    It is not in the spec hash: running replicas keep the values that they were started with.
    """

    signal: Signal = Field("SIGTERM", description="the signal; default SIGTERM")
    grace: Annotated[Seconds, AfterValidator(_check_grace)] = Field(
        30, description="how long the engine may take to end, at most 1h; default 30s")


class Engine(Authored):
    """The engine's command line, environment and probes; fleetctl adds no flags."""

    command: Annotated[list[Text], Field(min_length=1, description="program and leading arguments")]
    args: list[Text] = Field(default_factory=list, description="further arguments, appended verbatim")
    env: dict[EnvName, Annotated[
        Annotated[Text, TEXT] | Annotated[FromNode, MAPPING], TEXT_OR_MAPPING
    ]] = Field(
        default_factory=dict, description='extra environment variables; numbers and booleans must be quoted ("1")')
    ports: Annotated[list[DnsLabel], Field(max_length=16), AfterValidator(partial(
        _once_each, code="repeated_port", what="a port"))] = Field(
        default_factory=list, exclude_if=lambda names: not names, json_schema_extra={"uniqueItems": True},
        description="names of the ports it needs beside FLEETCTL_PORT: nixl is in FLEETCTL_PORT_NIXL")
    workdir: PathFromRoot | None = Field(None, description="working directory; default: a new, empty folder")
    caches: Annotated[list[CacheName], Field(max_length=16), AfterValidator(partial(
        _once_each, code="repeated_cache", what="a variable"))] = Field(
        default_factory=list, exclude_if=lambda names: not names, json_schema_extra={"uniqueItems": True},
        description="variables with the folders of its compile caches, such as VLLM_CACHE_ROOT: other replicas get "
                    "what is in them")
    version: Annotated[list[Text], Field(min_length=1, max_length=64)] | None = Field(
        None, exclude_if=is_absent, description="command that prints the engine's version, for caches; default: the "
                                                "version of the Python package that its command belongs to")
    readiness: Probe | None = Field(None, description="default: ready once alive for 5 s")
    liveness: Probe | None = Field(None, description="default: alive while the process runs")
    stop: Stop | None = Field(None, description="default: SIGTERM, and 30 s to end")
