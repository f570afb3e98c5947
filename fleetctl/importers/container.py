"""Imports a container as an engine, with its environment: references become fromNode, and no message shows a value.

Its image has no counterpart: fleetctl starts a program that is installed on the node, which may be podman. In its
command line the variables of another system are renamed to ours, and the rest stays byte for byte. Readiness and
liveness probes map one to one, and a startup probe becomes startupTimeout.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, get_args

from fleetctl.documents.engine import Signal
from fleetctl.documents.quantity import number_in
from fleetctl.importers.draft import PLACEHOLDER, filled
from fleetctl.importers.reading import Reading

_NAME = re.compile(r"(?P<mark>\$?\$[({]?|)(?<![A-Za-z0-9_])(?P<name>[A-Z][A-Z0-9_]*)\b")  # `$$` is an escape
_ARITHMETIC = re.compile(r"\$\(\((?:[^()]|\([^()]*\))*\)\)")
"""A shell's `$((N * 2))`, in which a name without `$` is a variable."""
_PORT = re.compile(r"--port(?:=|\s+)([0-9]+)\b")
_LEADER_PORT = re.compile(r"_LEADER_ADDRESS[)}]?:([0-9]+)\b")

OURS = "FLEETCTL_"
_FOREIGN = ("LWS_", "MODELPLANE_")
Variables = Mapping[str, str]
"""Our name for each variable of another system; other names with a prefix in _FOREIGN are reported."""


def texts_with_our_variables(
    container: Reading, key: str, variables: Variables, environment: Collection[str]
) -> list[str]:
    """Return the list of texts under a key, with the variables in `$(NAME)`, `${NAME}`, `$NAME`, `$((NAME))` renamed.

    Reported are: every renaming, a `$(NAME)` that neither fleetctl nor `environment` sets, every other word that is a
    variable of another system, and fixed ports.
    """
    found = container.texts(key)
    renamed = [_renamed(text, container.at(path), variables, environment) for text, path in found]
    for number, (text, path) in enumerate(found):
        match, previous = _PORT.search(text), found[number - 1][0] if number else ""
        port = match[1] if match else text if previous == "--port" and text.isdecimal() else None
        if port is not None:
            container.at(path).note(None, f"port {port} is fixed, but members on one node share its ports: use "
                                          "$(FLEETCTL_PORT), a free port for each member", "todo")
    return renamed


def _renamed(text: str, place: Reading, variables: Variables, environment: Collection[str]) -> str:
    """Return a text with the variables renamed; `place` = where it stands, for the notes."""
    arithmetic = [match.span() for match in _ARITHMETIC.finditer(text)]

    def ours(match: re.Match[str]) -> str:
        name, mark = match["name"], match["mark"]
        is_reference = mark in ("$", "$(", "${") or (
            not mark and any(start < match.start() < end for start, end in arithmetic))
        if name in variables and is_reference:
            place.note(None, f"${name} is written ${variables[name]}", "changed")
            return mark + variables[name]
        if name not in environment and (name.startswith(_FOREIGN) or (mark == "$(" and not name.startswith(OURS))):
            instead = f"use {variables[name]}" if name in variables else "replace it"
            place.note(None, f"{name} is not set here: {instead}", "todo")
        return match[0]

    renamed = _NAME.sub(ours, text)
    if leader := _LEADER_PORT.search(text):
        place.note(None, f"port {leader[1]} of the Leader is fixed, but two Leaders may share a node: use "
                         "$(FLEETCTL_LEADER_ENDPOINT), its address with a free port for each gang", "todo")
    return renamed


_ENTRYPOINTS = {"vllm/vllm-openai": "vllm serve, or python3 -m vllm.entrypoints.openai.api_server in older ones",
                "llama.cpp": "llama-server"}
"""The entrypoints of the most common images; given as a hint, never filled in."""

_HOMES = {"command": ("engine", "command"), "args": ("engine", "args"), "env": ("engine", "env"),
          "readinessProbe": ("engine", "readiness"), "livenessProbe": ("engine", "liveness"),
          "resources": ("resources",), "lifecycle": ("engine", "stop")}
"""The place in a member that each part of a container becomes, so that its losses are shown there."""

_LOST = {
    "imagePullPolicy": "there is no image to pull",
    "volumeMounts": "nothing is mounted: the paths must exist on the nodes",
    "volumeDevices": "nothing is mounted: the devices must exist on the nodes",
    "securityContext": "an engine runs as Ray's user",
    "terminationMessagePath": "the engine's last output is reported instead",
    "terminationMessagePolicy": "the engine's last output is reported instead",
    "tty": "an engine has no terminal",
    "stdin": "an engine has no standard input",
}
_IN_PODMAN = {
    "imagePullPolicy": "podman pulls nothing at a start: pull the image on the nodes beforehand",
    "volumeMounts": "nothing is mounted: add `-v PATH:PATH` to the command for what is on the nodes",
    "volumeDevices": "add `--device` to the command",
    "securityContext": "podman's own defaults apply: add its options to the command",
    "tty": "an engine has no terminal",
}
"""What replaces the reasons of _LOST if podman starts the image."""
PODMAN = (
    "podman", "run", "--rm", "--replace", "--name", "$(FLEETCTL_NAME)", "--init", "--log-driver=passthrough",
    "--pull=never", "--network=host", "--ipc=host", "--env", "FLEETCTL_*", "--env", "CUDA_*")
"""How podman runs an engine as a process of its own: see docs/containers.md for the reason of each option."""
DEVICES = {"nvidia.com/gpu": ("--device", "nvidia.com/gpu=all"),
           "amd.com/gpu": ("--device", "/dev/kfd", "--device", "/dev/dri", "--env", "HIP_*")}
"""Options that show a container the cards of its node; the environment selects those that Ray has granted."""
SET_BY_US = "CUDA_VISIBLE_DEVICES"
_SOURCES = {"secretKeyRef": "secret", "configMapKeyRef": "config map"}
_FIELDS = {"status.podIP": "FLEETCTL_HOST", "status.hostIP": "FLEETCTL_HOST", "spec.nodeName": "FLEETCTL_NODE",
           "metadata.name": "FLEETCTL_NAME"}
"""Our variable for a field of a pod: an engine has the address of its node."""


def engine(container: Reading, variables: Variables, *, probes_readiness: bool) -> dict[str, Any]:
    """Return the engine of a container; `probes_readiness` is False for a Worker, whose readiness is never probed."""
    image, runtime = container.text("image"), container.record.runtime
    if image is not None and not runtime:
        container.note("image", f"no image is started: the content of {image} must be on the nodes, or import it with "
                                "--runtime podman", "lost")
    container.skip("name")
    for key, steps in _HOMES.items():
        container.leads_to(key, *steps)
    env = environment(container, variables)

    def texts(owner: Reading, key: str) -> list[str]:
        return texts_with_our_variables(owner, key, variables, env)

    def exec_texts(owner: Reading, key: str) -> list[str]:
        found = texts(owner, key)
        return ["podman", "exec", "$(FLEETCTL_NAME)", *found] if found and image and runtime else found

    command, args, workdir = texts(container, "command"), texts(container, "args"), container.text("workingDir")
    if workdir is not None and not workdir.startswith("/"):
        container.lose("workingDir", "not an absolute path")
        workdir = None
    if image and runtime:
        container.note("image", f"podman starts {image}: pull it on the nodes{_by_digest(image)}", "todo")
        command, workdir = podman_command(image, env, command, workdir), None
    elif not command:
        known = next((words for name, words in _ENTRYPOINTS.items() if image and name in image), None)
        hint = f" (in {image} probably {known})" if known else ""
        container.note("command", f"no command, so the image's entrypoint was started: write it here{hint}", "todo")
    found = filled({
        "command": command or [PLACEHOLDER], "args": args, "env": env, "workdir": workdir,
        "readiness": readiness(container, exec_texts) if probes_readiness else None,
        "liveness": liveness(container, exec_texts),
    })
    if not probes_readiness:
        container.lose("readinessProbe", "never used on a Worker: a gang is ready when its Leader is")
    container.lose("ports", "a pod has ports of its own, but members on one node share its ports: use "
                            "$(FLEETCTL_PORT), a free port for each member")
    container.lose_each({**_LOST, **_IN_PODMAN} if image and runtime else _LOST)
    return found


def stop_signal(container: Reading) -> str | None:
    """Return the signal that ends the container, if an engine can have it; the hooks around it are reported."""
    hooks = container.child("lifecycle")
    signal = hooks.text("stopSignal")
    if signal is not None and signal not in get_args(Signal):
        hooks.note("stopSignal", f"{signal} cannot end an engine: SIGTERM is used", "lost")
        signal = None
    hooks.lose_rest("there are no hooks before or after an engine")
    return signal


def podman_command(image: str, env: Collection[str], command: Sequence[str], workdir: str | None = None) -> list[str]:
    """Return the command that starts an image with podman; without a `command` its entrypoint gets the args.

    Variables are passed by name, so that no value is in a command line.
    """
    named = [word for name in env for word in ("--env", name)]
    entry = ["--entrypoint="] if command else []
    return [*PODMAN, *named, *(["-w", workdir] if workdir else []), *entry, _qualified(image), *command]


def _qualified(image: str) -> str:
    """Return an image with its registry: without one Kubernetes means Docker Hub, and podman may refuse it."""
    first, slash, _ = image.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return image
    return f"docker.io/{image}" if slash else f"docker.io/library/{image}"


def show_cards(engine: dict[str, Any], resource: str = "nvidia.com/gpu") -> None:
    """Add the options for the cards of a member that claims some to its command, if podman starts it."""
    command = engine["command"]
    if tuple(command[:len(PODMAN)]) == PODMAN:
        command[len(PODMAN):len(PODMAN)] = DEVICES[resource]


def _by_digest(image: str) -> str:
    return "" if "@sha256:" in image else "; write its digest (NAME@sha256:...), as a tag may mean another image there"


def environment(container: Reading, variables: Variables) -> dict[str, Any]:
    """Return the `env` of an engine; of a duplicate name the last value counts, as in Kubernetes."""
    env: dict[str, Any] = {}
    entries = container.items("env")
    last = {entry.peek("name"): number for number, entry in enumerate(entries) if isinstance(entry.peek("name"), str)}
    for number, entry in enumerate(entries):
        name = entry.text("name")
        ours = name is not None and (name == SET_BY_US or name.startswith(OURS))
        if not name or "=" in name or ours:
            entry.lose(None, f"{name} is set by fleetctl itself" if ours else
                       "not a valid variable name" if name else "a variable without a name")
            continue
        if last[name] != number:
            entry.lose(None, f"{name} is set again below, and the last value counts")
            continue
        value = _referenced(entry, name) if "valueFrom" in entry else _literal(entry, variables, last)
        if value is not None:
            env[name] = value
    container.lose("envFrom", "all variables of a config map or secret: list each of them in env as {fromNode: NAME}",
                   "todo")
    return env


def _literal(entry: Reading, variables: Variables, names: Collection[Any]) -> str:
    value = entry.scalar("value") if "value" in entry else ""
    return _renamed(value or "", entry.at((*entry.path, "value")), variables, names)


def _referenced(entry: Reading, name: str) -> dict[str, str] | str | None:
    """Return a reference to the node's environment, or to our variable; None if the pod's value has no counterpart."""
    source = entry.child("valueFrom")
    field = source.child("fieldRef").text("fieldPath") if "fieldRef" in source else None
    if field in _FIELDS:
        source.child("fieldRef").skip("apiVersion")
        source.note("fieldRef", f"{name} is $({_FIELDS[field]}) here, instead of {field} of its pod", "changed")
        return f"$({_FIELDS[field]})"
    for kind, words in _SOURCES.items():
        if kind in source:
            reference = source.child(kind)
            where = f"key {reference.text('key')} of the {words} {reference.text('name')}"
            reference.skip("optional")
            source.note(kind, f"{name} came from {where}: set {name} in the environment of the Ray nodes", "todo")
            return {"fromNode": name}
    entry.lose("valueFrom", f"{name} came from its pod or container, which do not exist here")
    return None


Texts = Callable[[Reading, str], list[str]]
"""Reads the list of texts under a key, with variables renamed to ours."""

_SECONDS = {"periodSeconds": "period", "timeoutSeconds": "timeout"}
_DEFAULT_PERIOD, _DEFAULT_TIMEOUT, _DEFAULT_FAILURES = 10, 1, 3


def readiness(container: Reading, texts: Texts) -> dict[str, Any] | None:
    """Return the readiness probe in our format; None if it is missing or has no counterpart."""
    found = _probe(container, "readinessProbe", texts)
    container.child("readinessProbe").lose("failureThreshold", "readiness is probed until startupTimeout is over")
    return found


def liveness(container: Reading, texts: Texts) -> dict[str, Any] | None:
    """Return the liveness probe with Kubernetes' default times written out: ours differ, and may change."""
    found = _probe(container, "livenessProbe", texts)
    if found is None:
        return None
    threshold = container.child("livenessProbe").whole("failureThreshold")
    rhythm = {"period": f"{_DEFAULT_PERIOD}s", "timeout": f"{_DEFAULT_TIMEOUT}s"}
    limit = {"failureThreshold": threshold} if threshold else {}
    return {**found, **{key: value for key, value in rhythm.items() if key not in found}, **limit}


def _probe(container: Reading, key: str, texts: Texts) -> dict[str, Any] | None:
    if key not in container:
        return None
    source = container.child(key)
    kind = _kind(source, container, texts)
    if kind is None:
        source.lose(None, "not a probe of httpGet, tcpSocket or exec")
        return None
    rhythm = {ours: f"{seconds}s" for theirs, ours in _SECONDS.items()
              if (seconds := source.whole(theirs))}
    source.lose("initialDelaySeconds", "probes start at once; failures do not count until readiness passes")
    source.lose("successThreshold", "one success is enough")
    return {**kind, **rhythm}


def startup_seconds(container: Reading) -> int | None:
    """Return the startup time that a startup probe allows, in seconds; the probe itself is reported."""
    source = container.child("startupProbe")
    if not source.names:
        return None
    numbers = {name: source.natural(name) for name in ("initialDelaySeconds", "periodSeconds", "failureThreshold")}
    seconds = (numbers["initialDelaySeconds"] or 0) + (numbers["periodSeconds"] or _DEFAULT_PERIOD) * (
        numbers["failureThreshold"] or _DEFAULT_FAILURES)
    container.lose("startupProbe", f"written as a startupTimeout of {seconds} s; only the readiness probe is sent")
    return seconds


def _kind(source: Reading, container: Reading, texts: Texts) -> dict[str, Any] | None:
    if "httpGet" in source:
        target = source.child("httpGet")
        if target.scalar("scheme") not in (None, "HTTP"):
            target.note("scheme", "the probe uses http", "lost")
        target.lose("host", "the probe goes to the member itself")
        return {"http": {"path": target.text("path") or "/", **_port(target, container)}}
    if "tcpSocket" in source:
        target = source.child("tcpSocket")
        target.lose("host", "the probe goes to the member itself")
        return {"tcp": _port(target, container)}
    if "exec" in source:
        command = texts(source.child("exec"), "command")
        return {"exec": {"command": command}} if command else None
    return None


def _port(target: Reading, container: Reading) -> dict[str, int]:
    """Return the port as a number; a name is looked up in the container's ports."""
    written = target.scalar("port")
    named = {port.peek("name"): port.peek("containerPort") for port in container.items("ports")
             if isinstance(port.peek("name"), str)}
    port = named.get(written or "") if (number := number_in(written)) is None else number
    if isinstance(port, int) and 1 <= port <= 65535:
        return {"port": port}
    target.note("port", "no such port: the probe uses the member's $(FLEETCTL_PORT)", "todo")
    return {}
