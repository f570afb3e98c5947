"""One container as an engine, and its environment: references are left to the node, and no message shows a value.

Its image has no home here: fleetctl starts a program that is on the node.
"""

from __future__ import annotations

from typing import Any

from fleetctl.importers.draft import PLACEHOLDER, filled
from fleetctl.importers.kubernetes.command_line import OURS, Variables, foreign_names, texts_with_our_variables
from fleetctl.importers.kubernetes.probes import liveness, readiness
from fleetctl.importers.reading import Reading

_ENTRYPOINTS = {"vllm/vllm-openai": "vllm serve, or python3 -m vllm.entrypoints.openai.api_server in older ones",
                "llama.cpp": "llama-server"}
"""What the most used images start without a command; given as a hint, never filled in."""

_HOMES = {"command": ("engine", "command"), "args": ("engine", "args"), "env": ("engine", "env"),
          "readinessProbe": ("engine", "readiness"), "livenessProbe": ("engine", "liveness"),
          "resources": ("resources",)}
"""Where in a member a part of a container goes, so that its losses are shown there."""

_LOST = {
    "imagePullPolicy": "there is no image to pull",
    "volumeMounts": "nothing is mounted: the paths must exist on the nodes",
    "volumeDevices": "nothing is mounted: the devices must exist on the nodes",
    "securityContext": "an engine runs as the user Ray runs as",
    "lifecycle": "there are no hooks before or after an engine",
    "terminationMessagePath": "an engine's last output is read instead",
    "terminationMessagePolicy": "an engine's last output is read instead",
    "tty": "an engine has no terminal",
    "stdin": "an engine has no standard input",
}
SET_BY_US = "CUDA_VISIBLE_DEVICES"
_SOURCES = {"secretKeyRef": "secret", "configMapKeyRef": "config map"}


def engine(container: Reading, variables: Variables, *, asks_readiness: bool) -> dict[str, Any]:
    """Return the engine of a container; `asks_readiness` is False for a Worker, which is never asked."""
    image = container.text("image")
    if image is not None:
        container.note("image", f"no image is started: what {image} holds must be on the nodes", "lost")
    container.skip("name")
    for key, steps in _HOMES.items():
        container.leads_to(key, *steps)
    env = environment(container)

    def texts(owner: Reading, key: str) -> list[str]:
        return texts_with_our_variables(owner, key, variables, env)

    command, args = texts(container, "command"), texts(container, "args")
    if not command:
        known = next((words for name, words in _ENTRYPOINTS.items() if image and name in image), None)
        hint = f" (in {image} that is likely {known})" if known else ""
        container.note("command", f"no command is given, so the image's own was started: write it here{hint}", "todo")
    found = filled({
        "command": command or [PLACEHOLDER], "args": args, "env": env, "workdir": _workdir(container),
        "readiness": readiness(container, texts) if asks_readiness else None, "liveness": liveness(container, texts),
    })
    if not asks_readiness:
        container.lose("readinessProbe", "a Worker is never asked: a gang is ready when its Leader is")
    container.lose("ports", "a pod has its ports to itself; members on one node share them, and $(FLEETCTL_PORT) is "
                            "free for each")
    container.lose_each(_LOST)
    return found


def _workdir(container: Reading) -> str | None:
    path = container.text("workingDir")
    if path is None or path.startswith("/"):
        return path
    container.lose("workingDir", "not an absolute path")
    return None


def environment(container: Reading) -> dict[str, Any]:
    """Return the `env` of an engine; a name that is given twice keeps its last value, as in Kubernetes."""
    env: dict[str, Any] = {}
    entries = container.items("env")
    last = {entry.peek("name"): number for number, entry in enumerate(entries) if isinstance(entry.peek("name"), str)}
    for number, entry in enumerate(entries):
        name = entry.text("name")
        if not name or "=" in name or name.startswith(OURS) or name == SET_BY_US:
            entry.lose(None, _refusal(name))
            continue
        if last[name] != number:
            entry.lose(None, f"{name} is given again below, and the last one counts")
            continue
        value = _referenced(entry, name) if "valueFrom" in entry else _literal(entry, name)
        if value is not None:
            env[name] = value
    container.lose("envFrom", "all variables of a config map or secret: give each of them in env, as {fromNode: NAME}",
                   "todo")
    return env


def _refusal(name: str | None) -> str:
    if not name:
        return "a variable without a name"
    ours = name == SET_BY_US or name.startswith(OURS)
    return f"{name} is set by fleetctl itself" if ours else "not the name of a variable"


def _literal(entry: Reading, name: str) -> str:
    value = entry.scalar("value") if "value" in entry else ""
    if value and "$$" in value:
        entry.note("value", f"{name} is written with $ for each $$: there is nothing to escape in an environment here",
                   "changed")
    if value and "$(" in value.replace("$$", ""):
        entry.note("value", f"{name} refers to a variable as $(NAME), which is not replaced in an environment here",
                   "todo")
    elif value and (foreign := foreign_names(value)):
        entry.note("value", f"{name} holds {foreign[0]}, which is not set here: replace it", "todo")
    return (value or "").replace("$$", "$")


def _referenced(entry: Reading, name: str) -> dict[str, str] | None:
    """Return where the node has the value; None where a node cannot know it."""
    source = entry.child("valueFrom")
    for kind, words in _SOURCES.items():
        if kind in source:
            reference = source.child(kind)
            where = f"key {reference.text('key')} of the {words} {reference.text('name')}"
            reference.skip("optional")
            source.note(kind, f"{name} came from {where}: set {name} in the environment of the Ray nodes", "todo")
            return {"fromNode": name}
    entry.lose("valueFrom", f"{name} came from its pod or container, and here there is neither")
    return None
