"""The environment of an engine: the node's own, what the fleet file sets, and what fleetctl injects."""

from __future__ import annotations

import os
import re
from typing import Any, Dict, Mapping

from .failure import StartFailed
from .messages import Engine
from .processes import environment_of

DEFAULTS = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
"""By default CUDA numbers the fastest card first; the driver and `nvidia-smi` number by bus. The engine must use the
card that was checked, even if the cards of a node differ."""
_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")


def node_environment() -> Dict[str, str]:
    """Return the node's own environment, read from the raylet, our parent: Ray changes that of its workers."""
    raylet = environment_of(os.getppid())
    node = {os.fsdecode(name): os.fsdecode(value) for name, value in raylet.items()} or os.environ
    return {
        name: value
        for name, value in node.items()
        if name != "PYTHONPATH" and not name.startswith(("RAY_", "FLEETCTL_"))
    }


def engine_environment(engine: Engine, injected: Mapping[str, str]) -> Dict[str, str]:
    """Return the engine's environment: the node's, defaults, the engine's own `env`, ours; later values win."""
    node = node_environment()
    env = {**node, **DEFAULTS}
    for name, value in engine.env.items():
        if isinstance(value, str):
            env[name] = value
        elif value.from_node in node:
            env[name] = node[value.from_node]
        else:
            raise StartFailed("ENV_MISSING", f"{name}: the node has no variable {value.from_node}")
    env.update(injected)
    return env


def expand(value: Any, variables: Mapping[str, str]) -> Any:
    """Return a JSON value with each known `$(NAME)` in its strings replaced. As in Kubernetes, `$$(NAME)` is an escape.

    Keys and unknown names stay as they are; raises StartFailed for an unknown FLEETCTL_ name.
    """

    def replace(match: re.Match[str]) -> str:
        name = match.group(1)
        if match.group(0) == "$$":
            return "$"
        if name.startswith("FLEETCTL_") and name not in variables:
            raise StartFailed("UNRESOLVED_VARIABLE", f"$({name}) is not a fleetctl variable")
        return variables.get(name, match.group(0))

    if isinstance(value, str):
        return _REFERENCE.sub(replace, value)
    if isinstance(value, Mapping):
        return {key: expand(part, variables) for key, part in value.items()}
    return [expand(part, variables) for part in value] if isinstance(value, (list, tuple)) else value
