"""An actor process's view of its surroundings: node, cards, log folder, restarts; and the environment of an engine.

An engine has the node's own environment, what the fleet file sets, and what fleetctl injects.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from graphlib import CycleError, TopologicalSorter
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Union

import ray
import ray._private.state
import ray._private.worker

from .messages import Engine, FromNode
from .processes import environment_of
from .report import StartFailed

MAX_BACKOFF_S = 300.0
UNRESOLVED = "UNRESOLVED_VARIABLE"
TEXT_BYTES = 128 << 10
"""MAX_ARG_STRLEN of Linux, with the NUL at the end."""
CUDA, HIP, ONEAPI = "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ONEAPI_DEVICE_SELECTOR"
OTHER_ACCELERATORS = (
    "ASCEND_RT_VISIBLE_DEVICES", "HABANA_VISIBLE_MODULES", "NEURON_RT_VISIBLE_CORES", "TPU_VISIBLE_CHIPS",
)
DEFAULTS = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
"""By default CUDA numbers the fastest card first; the driver and `nvidia-smi` number by bus. The engine must use the
card that was checked, even if the cards of a node differ."""
PRELOAD, OMP_THREADS, SHARE = "LD_PRELOAD", "OMP_NUM_THREADS", 10_000
NOT_FOR_ENGINES = ("PYTHONPATH", "SPT_NOENV")
RAY_ALLOCATOR = "/ray/core/libjemalloc.so"
RAY_PRELOADS = ("RAY_JEMALLOC_LIB_PATH", "PERFTOOLS_PATH")
"""The variables that name what Ray preloads for itself instead of its own allocator, or in addition."""
RAY_MADE = {"MALLOC_CONF": "RAY_JEMALLOC_CONF", "CPUPROFILE": "PERFTOOLS_LOGFILE"}
"""The variables that Ray sets in its own processes, and where it takes their values from."""
RAY_UP = {OMP_THREADS: "1", "PYTHONWARNINGS": "ignore"}
_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")


def log_path(file_name: str) -> str:
    """Return the path in Ray's session log folder, which the dashboard serves even after this process has ended."""
    return os.path.join(ray._private.worker.global_worker.node.get_logs_dir_path(), file_name)


def granted_cards() -> List[str]:
    """Return the ids of this actor's cards, as in Ray's visible-devices variable."""
    ids = ray.get_runtime_context().get_accelerator_ids()
    return [str(card) for card in ids.get("GPU", [])]


def visible_devices(granted: List[str], node: Mapping[str, str]) -> Dict[str, str]:
    """Return the variables that restrict an engine to its granted cards, for every vendor.

    They include Ray's variable for this node's GPUs, even if Ray is configured not to set it. The node's own variable
    for HIP is replaced, as it would contradict ours. The node's ROCR_VISIBLE_DEVICES is kept: Ray's numbering already
    skips the cards that it hides.
    """
    ids = ",".join(granted)
    variables = {CUDA: ids}
    if HIP in node:
        variables[HIP] = ids
    name = ray_gpu_variable() if granted else None
    if name:
        variables[name] = f"level_zero:{ids}" if name == ONEAPI else ids
    return variables


def ray_gpu_variable() -> Optional[str]:
    """Return the variable with which Ray itself selects GPUs on this node; its manager knows their vendor."""
    try:
        from ray._private.accelerators import get_accelerator_manager_for_resource

        manager = get_accelerator_manager_for_resource("GPU")
        return manager.get_visible_accelerator_ids_env_var() if manager else None
    except Exception:  # a private API of Ray: without it CUDA_VISIBLE_DEVICES selects the engine's cards
        return None


def other_accelerators() -> Dict[str, str]:
    """Return Ray's variables for accelerators that are not GPUs."""
    return {name: os.environ[name] for name in OTHER_ACCELERATORS if name in os.environ}


def was_restarted() -> bool:
    """Return whether Ray has restarted this actor."""
    return bool(ray.get_runtime_context().was_current_actor_reconstructed)


def restart_count() -> int:
    """Return how many times Ray has restarted this actor; 1 if Ray does not answer."""
    try:
        return int(ray._private.state.actors(ray.get_runtime_context().get_actor_id())["NumRestarts"])
    except Exception:
        return 1


def back_off(first_s: float, restarts: int) -> None:
    """Wait before a restart: `first_s` before the first, twice as long before each further one, up to MAX_BACKOFF_S."""
    time.sleep(min(MAX_BACKOFF_S, first_s * 2 ** min(16, max(0, restarts - 1))))


def node_environment() -> Dict[str, str]:
    """Return the node's own environment, read from the raylet, our parent: Ray changes that of its workers.

    What Ray has put into the raylet's is left out, too: the allocator that it preloads for itself and its profilers'
    settings (ray/_private/services.py), how it renames processes, and what `ray up` sets for all of its commands
    (ray/autoscaler/_private/command_runner.py).
    """
    raylet = environment_of(os.getppid())
    node = {os.fsdecode(name): os.fsdecode(value) for name, value in raylet.items()} or dict(os.environ)
    made = {name: node.get(source) for name, source in RAY_MADE.items()}
    if all(node.get(name) == value for name, value in RAY_UP.items()):
        made.update(RAY_UP)
    node = {name: value for name, value in node.items() if value != made.get(name)}
    rays_own = {node.get(source) for source in RAY_PRELOADS}
    preloads = re.split("[ :]+", node.get(PRELOAD, ""))
    kept = [path for path in preloads if path and path not in rays_own and not _is_in_ray(path)]
    if kept != preloads:
        node[PRELOAD] = ":".join(kept)
    return {
        name: value
        for name, value in node.items()
        if name not in NOT_FOR_ENGINES and not name.startswith(("RAY_", "FLEETCTL_")) and (value or name != PRELOAD)
    }


def _is_in_ray(path: str) -> bool:
    """Return whether a library is part of Ray, of this installation or, by its place in it, of the raylet's."""
    return path.endswith(RAY_ALLOCATOR) or os.path.realpath(path).startswith(
        os.path.realpath(os.path.dirname(ray.__file__)) + os.sep)


@contextlib.contextmanager
def node_priority() -> Iterator[None]:
    """Give what this thread starts meanwhile the raylet's niceness, if this user may: Ray's workers are at nice 15."""
    own = os.getpriority(os.PRIO_PROCESS, 0)
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, os.getppid()))
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, own)


def share_memory_standing() -> None:
    """Let the kernel, when memory is short, choose this process and all that it starts as it chooses the raylet.

    Ray makes its workers the first to be killed. An engine is the work of its node.
    """
    with contextlib.suppress(OSError):
        with open(f"/proc/{os.getppid()}/oom_score_adj") as raylets:
            standing = raylets.read()
        with open("/proc/self/oom_score_adj", "w") as own:
            own.write(standing)


def engine_environment(
    engine: Engine, injected: Mapping[str, str], cpus: int = 0, *, partial: bool = False
) -> Dict[str, str]:
    """Return the engine's environment: the node's, defaults, the engine's own `env`, ours; later values win.

    `$(NAME)` in a value of `env` is one of ours, another value of `env`, or else the node's: of its own name, too.
    `cpus` = the member's claim in 1/10000: from one CPU on, OpenMP has as many threads, as Ray sets it for an actor.
    `partial` = leave out each value that needs a variable of ours that is not known yet.
    """
    node = node_environment()
    threads = {OMP_THREADS: str(cpus // SHARE)} if cpus >= SHARE else {}
    env = {**threads, **node, **DEFAULTS, **injected}
    for name in _in_order_of_references(engine.env):
        value = engine.env[name]
        try:
            if isinstance(value, str):
                found = expand(value, env)
            elif value.from_node in node:
                found = node[value.from_node]
            else:
                raise StartFailed("ENV_MISSING", f"{name}: the node has no variable {value.from_node}")
        except StartFailed as failure:
            if not partial or failure.code != UNRESOLVED:
                raise
            env.pop(name, None)
        else:
            env[name] = injected.get(name, found)
    return env


def _in_order_of_references(values: Mapping[str, Union[str, FromNode]]) -> List[str]:
    """Return the names so that each comes after those that its value refers to; raises StartFailed for a circle.

    The order in the file does not count: it is not part of the spec hash.
    """
    graph = {name: {other for other in _REFERENCE.findall(value) if other in values and other != name}
             if isinstance(value, str) else set() for name, value in values.items()}
    try:
        return list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        circle = ", ".join(sorted({*error.args[1]}))
        raise StartFailed(UNRESOLVED, f"variables of env refer to each other in a circle: {circle}") from None


def refuse_too_long(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Raise StartFailed for an argument or a variable that Linux refuses to hand to a process."""
    texts = [(f"argument {number}", text) for number, text in enumerate(argv)]
    texts += [(f"the variable {name}", f"{name}={value}") for name, value in env.items()]
    for what, text in texts:
        if len(text) * 4 >= TEXT_BYTES and len(os.fsencode(text)) >= TEXT_BYTES:
            raise StartFailed("TEXT_TOO_LONG", f"{what} has {len(os.fsencode(text))} bytes, and Linux allows a process"
                                               f" {TEXT_BYTES - 1} in each")


def expand(value: Any, variables: Mapping[str, str]) -> Any:
    """Return a JSON value with each known `$(NAME)` in its strings replaced. As in Kubernetes, `$$(NAME)` is an escape.

    Keys and unknown names stay as they are; raises StartFailed for an unknown FLEETCTL_ name.
    """

    def replace(match: re.Match[str]) -> str:
        name = match.group(1)
        if match.group(0) == "$$":
            return "$"
        if name.startswith("FLEETCTL_") and name not in variables:
            raise StartFailed(UNRESOLVED, f"$({name}) is not a fleetctl variable")
        return variables.get(name, match.group(0))

    if isinstance(value, str):
        return _REFERENCE.sub(replace, value)
    if isinstance(value, Mapping):
        return {key: expand(part, variables) for key, part in value.items()}
    return [expand(part, variables) for part in value] if isinstance(value, (list, tuple)) else value
