"""Rules over command lines: `$(NAME)`, secrets that should be one; and flags that set a number of cards or a port.

fleetctl must set every name with its prefix. Any other name is one of the engine's environment, or stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from math import prod

from fleetctl.documents.mask import MAY_BE_SECRET, is_secret_value, secrets_in, secrets_in_words, variable_for
from fleetctl.documents.nearest import nearest
from fleetctl.documents.position import Path
from fleetctl.fleetfile.nodes import Raw
from fleetctl.problem import Problem

_DIVIDING = {
    **dict.fromkeys(("tensor-parallel-size", "tp-size", "tp"), "tensor"),
    **dict.fromkeys(("pipeline-parallel-size", "pp-size", "pp"), "pipeline"),
}
"""Flags of vLLM, SGLang and TensorRT-LLM, with hyphens for underscores, that divide one model over cards."""
_MULTIPLYING = ("data-parallel", "dp", "enable-dp", "context-parallel", "prefill-context-parallel")
"""Prefixes of flags that may multiply that number of cards."""


def command_line(owner: Raw) -> Iterator[tuple[Path, str]]:
    """Yield the texts of `command` and `args`, each with its path."""
    for key in ("command", "args"):
        yield from owner.texts(key)


def flags(engine: Raw) -> Iterator[tuple[str, str, Path]]:
    """Yield each flag without its hyphens, the text after its `=` or else the next word, and its path.

    A shell command line in one text is split into its words.
    """
    words = [(word, path) for path, text in command_line(engine) for word in text.split()]
    for (word, path), (following, _) in pairwise([*words, ("", ())]):
        if word.startswith("-"):
            name, _, value = word.partition("=")
            yield name.lstrip("-").replace("_", "-"), value or following, path


def cards_by_flags(engine: Raw) -> tuple[int, bool, Path] | None:
    """Return the number of cards the flags divide the model over, whether other flags may multiply it, and a path.

    The path is that of the first such flag. None if no flag has a number.
    """
    sizes: dict[str, tuple[int, Path]] = {}
    multiplied = False
    for name, value, path in flags(engine):
        multiplied = multiplied or name.startswith(_MULTIPLYING)
        if name in _DIVIDING and value.isdecimal() and len(value) < 6:
            sizes[_DIVIDING[name]] = int(value), path
    if not sizes:
        return None
    return prod(size for size, _ in sizes.values()), multiplied, next(iter(sizes.values()))[1]


def fixed_port(engine: Raw) -> tuple[int, Path] | None:
    """Return the number after `--port`, and its path; None if there is none."""
    return next(((int(value), path) for name, value, path in flags(engine)
                 if name == "port" and value.isdecimal() and 0 < int(value[:6]) < 65536), None)


INJECTED: dict[str, str] = {
    "FLEETCTL_MODEL": "the model key",
    "FLEETCTL_REPLICA_ID": "the replica's id",
    "FLEETCTL_GROUP": "the worker group's name",
    "FLEETCTL_COPY": "the index of the group's copy, from 0",
    "FLEETCTL_RANK": "the member's rank in its gang, 0 for the Leader",
    "FLEETCTL_GROUP_SIZE": "the number of members in the group",
    "FLEETCTL_RANKS": "the ranks of this member for an engine that counts one per card, such as `8,9,10,11`",
    "FLEETCTL_LEADER_ADDRESS": "the address of rank 0 of the group",
    "FLEETCTL_LEADER_PORT": "a second free port at that address",
    "FLEETCTL_LEADER_ENDPOINT": "both as one, `10.0.0.7:7002` or `[fd00::7]:7002`",
    "FLEETCTL_HOST": "the address of this member's node",
    "FLEETCTL_NODE": "the name of this member's node",
    "FLEETCTL_PORT": "a free port for this member",
    "FLEETCTL_NAME": "a name that no other member of the cluster has, a DNS label: for a container, or files",
    "FLEETCTL_MODEL_DIR": "the folder with the member's [weights](weights.md); only set if it has weights",
}
"""The variables that fleetctl sets for an engine, with their meaning."""
MODEL_DIR = "FLEETCTL_MODEL_DIR"

_MAY_BE_DAEMON = re.compile(r"(?:^|[\0/\s;&|(])(?:podman|docker|nerdctl|ctr|crictl)")
"""Found in every command line that may let a daemon start a container."""
_REFERENCE = re.compile(r"\$\$|\$\(([^()]*)\)")
_SHELL_VARIABLE = re.compile(r"(?<!\$)\$(?:([A-Z_][A-Z0-9_]*)|\{([A-Z_][A-Z0-9_]*)\})")
_WHOLE_VARIABLE = re.compile(r"\$(?:[A-Z_][A-Z0-9_]*|\{[A-Z_][A-Z0-9_]*\}|\([A-Z_][A-Z0-9_]*\))")
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ash", "env"})


def check_references(member: Raw) -> Iterator[Problem]:
    """Yield the unresolved references in one member's command, args, environment and probe commands."""
    engine = member.child("engine")
    environment = engine.child("env")
    texts = [found for owner in (engine, *(engine.child(probe).child("exec") for probe in ("readiness", "liveness")))
             for found in command_line(owner)]
    texts += [((*environment.path, name), value) for name, value in environment.value.items() if isinstance(value, str)]
    for path, text in texts:
        for name in references(text):
            if name not in INJECTED:
                yield member.document.problem("FL048", path, f"$({name}) is not set by fleetctl",
                                              allowed=", ".join(INJECTED), suggestion=_meant(name))
            elif name == MODEL_DIR and member.get("weights") is None:
                yield member.document.problem("FL048", path, f"$({name}) is not set for a member without weights",
                                              allowed="weights in this member")
            elif path[-2] == "env":
                yield member.document.problem("FL063", path, f"$({name}) is not expanded in an environment value",
                                              allowed="command and args; the engine's environment has the variable too")
    if _MAY_BE_DAEMON.search("\0".join(text for _, text in command_line(engine))):
        yield from _containers(engine)
    yield from _variables_as_values(environment)
    yield from _shell_variables(engine)
    yield from _secrets(engine)


def _containers(engine: Raw) -> Iterator[Problem]:
    """Warn about a container that a daemon starts: it is no process of the engine, and goes on when that has ended."""
    from fleetctl.fleetfile.containers import find_container  # few fleets have any

    words = list(command_line(engine))
    container = find_container([text for _, text in words])
    if container and container.is_apart:
        yield engine.document.problem(
            "FL077", words[container.word][0], f"{container.runtime} lets a daemon start the container, which goes on"
            " running, on its cards, when the engine is ended",
            allowed="podman or apptainer, whose containers end with the engine, or a script that ties the container to "
                    "its client: see the page about containers in the documentation")


def _variables_as_values(environment: Raw) -> Iterator[Problem]:
    """Warn about values that are only a variable. The value is shown only if it is the variable's own name."""
    for name, value in environment.value.items():
        if isinstance(value, str) and _WHOLE_VARIABLE.fullmatch(value) and "FLEETCTL" not in value:
            suggestion = f"{{fromNode: {name}}}" if value.strip("${()}") == name else None
            yield environment.problem("FL068", f"the value of {name} looks like a variable, but is not expanded",
                                      key=name, allowed="text, or {fromNode: NAME}", suggestion=suggestion)


def _secrets(engine: Raw) -> Iterator[Problem]:
    """Warn about literal secrets, without showing them."""
    for owner in (engine, *(engine.child(probe).child("exec") for probe in ("readiness", "liveness"))):
        words = list(command_line(owner))
        if not MAY_BE_SECRET.search("\0".join(text for _, text in words)):
            continue
        for at, secrets in secrets_in_words([text for _, text in words]):
            value_of = re.fullmatch("the value of (.+)", secrets[0][2])
            name = variable_for(value_of[1]) if value_of else "SECRET"
            what = " and ".join(dict.fromkeys(what for _, _, what in secrets))
            yield engine.document.problem(
                "FL070", words[at][0], f"{what} is in plain text: whoever can read this file has it", secret=True,
                allowed=f"$({name}), with env: {{{name}: {{fromNode: {name}}}}}; it is expanded when the engine starts")
    for probe in ("readiness", "liveness"):
        request = engine.child(probe).child("http")
        path = request.text("path") or ""
        for _, _, what in secrets_in(path) if MAY_BE_SECRET.search(path) else ():
            name = variable_for(what.removeprefix("the value of "))
            yield engine.document.problem(
                "FL070", (*request.path, "path"), f"{what} is in plain text: whoever can read this file has it",
                secret=True,
                allowed=f"exec: a command, with $({name}), and env: {{{name}: {{fromNode: {name}}}}}")
    for name, value in engine.child("env").value.items():
        if isinstance(value, str) and MAY_BE_SECRET.search(f"{name}={value}") and is_secret_value(name, value):
            yield engine.child("env").problem(
                "FL070", f"the value of {name} is in plain text: whoever can read this file has it", key=name,
                allowed=f"{{fromNode: {name}}}, the variable {name} of the node")


def references(text: str) -> Iterator[str]:
    """Yield the names in `$(...)` that have our prefix."""
    yield from (name for name in all_references(text) if name.strip().upper().startswith("FLEETCTL"))


def all_references(text: str) -> Iterator[str]:
    """Yield the names in `$(...)`; `$$(NAME)` is an escape, as in Kubernetes."""
    yield from (match[1] for match in _REFERENCE.finditer(text) if match[1] is not None)


def _meant(name: str) -> str | None:
    meant = f"FLEETCTL_{name}" if f"FLEETCTL_{name}" in INJECTED else nearest(name, list(INJECTED))
    return f"$({meant})" if meant else None


def _shell_variables(engine: Raw) -> Iterator[Problem]:
    if any(item.rsplit("/", 1)[-1] in _SHELLS for _, item in command_line(engine)):
        return
    for path, item in command_line(engine):
        match = _SHELL_VARIABLE.search(item)
        if match is not None:
            yield engine.document.problem("FL062", path, f"{match[0]} is a shell variable, but there is no shell here",
                                          suggestion=_meant(match[1] or match[2]))
