"""The environment of an engine: the node's own, what the fleet file sets, and what fleetctl injects."""

from __future__ import annotations

import os
import re
from typing import Any, Dict, List, Mapping

from .failure import StartFailed
from .processes import environment_of

DEFAULTS = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
"""CUDA numbers the fastest card first, the driver and `nvidia-smi` go by bus: the card that was checked must be the one
that is used, also where a node's cards are not alike."""
_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")


def node_environment() -> Dict[str, str]:
    """Return the node's own environment: that of the raylet, our parent, since Ray changes its workers'."""
    raylet = environment_of(os.getppid())
    node = {os.fsdecode(name): os.fsdecode(value) for name, value in raylet.items()} or os.environ
    return {
        name: value
        for name, value in node.items()
        if name != "PYTHONPATH" and not name.startswith(("RAY_", "FLEETCTL_"))
    }


def engine_environment(spec: Mapping[str, Any], injected: Mapping[str, str]) -> Dict[str, str]:
    """Return the engine's environment: node, defaults, the engine's own `env`, ours; a later one wins."""
    node = node_environment()
    env = {**node, **DEFAULTS}
    for name, value in spec.get("env", {}).items():
        if isinstance(value, str):
            env[name] = value
        elif value["fromNode"] in node:
            env[name] = node[value["fromNode"]]
        else:
            raise StartFailed("ENV_MISSING", f"{name}: the node has no variable {value['fromNode']}")
    env.update(injected)
    return env


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Return `text` with every known `$(NAME)` replaced, as in Kubernetes: `$$(NAME)` is an escape.

    An unknown name stays as it is; raises KeyError for an unknown FLEETCTL_ name.
    """

    def replace(match: re.Match[str]) -> str:
        if match.group(0) == "$$":
            return "$"
        name = match.group(1)
        if name in variables:
            return variables[name]
        if name.startswith("FLEETCTL_"):
            raise KeyError(name)
        return match.group(0)

    return _REFERENCE.sub(replace, text)


def expand_all(parts: List[str], env: Mapping[str, str]) -> List[str]:
    """Return each of `parts` with its references to variables replaced."""
    try:
        return [expand(part, env) for part in parts]
    except KeyError as unknown:
        raise StartFailed("UNRESOLVED_VARIABLE", f"$({unknown.args[0]}) is not a variable of fleetctl") from None


def expand_within(value: Any, env: Mapping[str, str]) -> Any:
    """Return a JSON value with the references in its texts replaced; keys stay as they are."""
    if isinstance(value, str):
        return expand_all([value], env)[0]
    if isinstance(value, Mapping):
        return {key: expand_within(part, env) for key, part in value.items()}
    return [expand_within(part, env) for part in value] if isinstance(value, list) else value
