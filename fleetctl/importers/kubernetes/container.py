"""Imports a container as an engine, with its environment: references become fromNode, and no message shows a value.

Its image has no counterpart: fleetctl starts a program that is installed on the node.
"""

from __future__ import annotations

from typing import Any

from fleetctl.importers.draft import PLACEHOLDER, filled
from fleetctl.importers.kubernetes.command_line import OURS, Variables, foreign_names, texts_with_our_variables
from fleetctl.importers.kubernetes.probes import liveness, readiness
from fleetctl.importers.reading import Reading

_ENTRYPOINTS = {"vllm/vllm-openai": "vllm serve, or python3 -m vllm.entrypoints.openai.api_server in older ones",
                "llama.cpp": "llama-server"}
"""The entrypoints of the most common images; given as a hint, never filled in."""

_HOMES = {"command": ("engine", "command"), "args": ("engine", "args"), "env": ("engine", "env"),
          "readinessProbe": ("engine", "readiness"), "livenessProbe": ("engine", "liveness"),
          "resources": ("resources",)}
"""The place in a member that each part of a container becomes, so that its losses are shown there."""

_LOST = {
    "imagePullPolicy": "there is no image to pull",
    "volumeMounts": "nothing is mounted: the paths must exist on the nodes",
    "volumeDevices": "nothing is mounted: the devices must exist on the nodes",
    "securityContext": "an engine runs as Ray's user",
    "lifecycle": "there are no hooks before or after an engine",
    "terminationMessagePath": "the engine's last output is reported instead",
    "terminationMessagePolicy": "the engine's last output is reported instead",
    "tty": "an engine has no terminal",
    "stdin": "an engine has no standard input",
}
SET_BY_US = "CUDA_VISIBLE_DEVICES"
_SOURCES = {"secretKeyRef": "secret", "configMapKeyRef": "config map"}


def engine(container: Reading, variables: Variables, *, probes_readiness: bool) -> dict[str, Any]:
    """Return the engine of a container; `probes_readiness` is False for a Worker, whose readiness is never probed."""
    image = container.text("image")
    if image is not None:
        container.note("image", f"no image is started: the content of {image} must be on the nodes", "lost")
    container.skip("name")
    for key, steps in _HOMES.items():
        container.leads_to(key, *steps)
    env = environment(container)

    def texts(owner: Reading, key: str) -> list[str]:
        return texts_with_our_variables(owner, key, variables, env)

    command, args = texts(container, "command"), texts(container, "args")
    if not command:
        known = next((words for name, words in _ENTRYPOINTS.items() if image and name in image), None)
        hint = f" (in {image} probably {known})" if known else ""
        container.note("command", f"no command, so the image's entrypoint was started: write it here{hint}", "todo")
    found = filled({
        "command": command or [PLACEHOLDER], "args": args, "env": env, "workdir": _workdir(container),
        "readiness": readiness(container, texts) if probes_readiness else None, "liveness": liveness(container, texts),
    })
    if not probes_readiness:
        container.lose("readinessProbe", "never used on a Worker: a gang is ready when its Leader is")
    container.lose("ports", "a pod has ports of its own, but members on one node share its ports: use "
                            "$(FLEETCTL_PORT), a free port for each member")
    container.lose_each(_LOST)
    return found


def _workdir(container: Reading) -> str | None:
    path = container.text("workingDir")
    if path is None or path.startswith("/"):
        return path
    container.lose("workingDir", "not an absolute path")
    return None


def environment(container: Reading) -> dict[str, Any]:
    """Return the `env` of an engine; of a duplicate name the last value counts, as in Kubernetes."""
    env: dict[str, Any] = {}
    entries = container.items("env")
    last = {entry.peek("name"): number for number, entry in enumerate(entries) if isinstance(entry.peek("name"), str)}
    for number, entry in enumerate(entries):
        name = entry.text("name")
        if not name or "=" in name or name.startswith(OURS) or name == SET_BY_US:
            entry.lose(None, _refusal(name))
            continue
        if last[name] != number:
            entry.lose(None, f"{name} is set again below, and the last value counts")
            continue
        value = _referenced(entry, name) if "valueFrom" in entry else _literal(entry, name)
        if value is not None:
            env[name] = value
    container.lose("envFrom", "all variables of a config map or secret: list each of them in env as {fromNode: NAME}",
                   "todo")
    return env


def _refusal(name: str | None) -> str:
    if not name:
        return "a variable without a name"
    ours = name == SET_BY_US or name.startswith(OURS)
    return f"{name} is set by fleetctl itself" if ours else "not a valid variable name"


def _literal(entry: Reading, name: str) -> str:
    value = entry.scalar("value") if "value" in entry else ""
    if value and "$$" in value:
        entry.note("value", f"each $$ in {name} is written as $: environment values have no escapes here", "changed")
    if value and "$(" in value.replace("$$", ""):
        entry.note("value", f"{name} refers to a variable as $(NAME), which is not expanded in an environment value",
                   "todo")
    elif value and (foreign := foreign_names(value)):
        entry.note("value", f"{name} refers to {foreign[0]}, which is not set here: replace it", "todo")
    return (value or "").replace("$$", "$")


def _referenced(entry: Reading, name: str) -> dict[str, str] | None:
    """Return a reference to the node's environment; None if the value comes from the pod."""
    source = entry.child("valueFrom")
    for kind, words in _SOURCES.items():
        if kind in source:
            reference = source.child(kind)
            where = f"key {reference.text('key')} of the {words} {reference.text('name')}"
            reference.skip("optional")
            source.note(kind, f"{name} came from {where}: set {name} in the environment of the Ray nodes", "todo")
            return {"fromNode": name}
    entry.lose("valueFrom", f"{name} came from its pod or container, which do not exist here")
    return None
