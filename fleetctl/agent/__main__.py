"""The job's entry point: `python -m fleetctl_agent VERB NAME NAMESPACE`; Ray's table holds the request under NAME."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from typing import Any, Callable, Mapping, Optional, Tuple, Type

import ray
from ray import cloudpickle

from . import run_messages
from .apply import run_apply
from .evict import run_evict, run_restart
from .examine import run_examine
from .leftovers import run_caches, run_prune, run_repair
from .node_request import run_release
from .prefetch import run_prefetch
from .records import NO_RUNS, NOTE_VERBS, NoteRequest, begin_run, end_run, run_note
from .run import WORKER
from .run_messages import EventStream, wait_for_document
from .standby import run_standby
from .wire import WrongDocument, parse

JOB_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"
REQUEST_S = 60.0
OLDEST_RAY = (2, 49)
VERBS: Mapping[str, Tuple[Type[Any], Callable[..., int]]] = {
    "apply": (run_messages.ApplyRequest, run_apply), "evict": (run_messages.ExplicitRequest, run_evict),
    "restart": (run_messages.ExplicitRequest, run_restart), "examine": (run_messages.ExamineRequest, run_examine),
    "repair": (run_messages.RepairRequest, run_repair), "prefetch": (run_messages.PrefetchRequest, run_prefetch),
    "caches": (run_messages.CachesRequest, run_caches), "prune": (run_messages.CachesRequest, run_prune),
    "release": (run_messages.ReleaseRequest, run_release), "standby": (run_messages.StandbyRequest, run_standby),
    **dict.fromkeys(NOTE_VERBS, (NoteRequest, run_note))}


def hide_package_from_actors() -> None:
    """Remove our package from the environment that actors inherit: it doubles the start time of their workers."""
    config = json.loads(os.environ.get(JOB_CONFIG, "{}"))
    if config.pop("runtime_env", None) is not None:
        os.environ[JOB_CONFIG] = json.dumps(config)
    cloudpickle.register_pickle_by_value(sys.modules[__package__])


def too_old(version: str) -> Optional[str]:
    """Return why this Ray cannot run the agent, or None if it can."""
    parts = re.match(r"(\d+)\.(\d+)", version)
    if parts is None or (int(parts[1]), int(parts[2])) >= OLDEST_RAY:
        return None
    return f"the cluster runs Ray {version}; fleetctl needs {OLDEST_RAY[0]}.{OLDEST_RAY[1]} or later"


def main() -> int:
    """Connect to the cluster and carry out the request."""
    verb, name, namespace = sys.argv[1:]
    events = EventStream()
    hide_package_from_actors()
    ray.init(address="auto", namespace=namespace, logging_level="ERROR", log_to_driver=False)
    request = wait_for_document(name, REQUEST_S)
    if request is None:
        return events.end(1, f"no request came within {REQUEST_S:g} s")
    trouble = too_old(ray.__version__)
    if trouble:
        return events.end(1, trouble)
    kind, carry_out = VERBS[verb]
    try:
        parsed = parse(kind, request)
    except WrongDocument as wrong:
        return events.end(1, f"the request cannot be read: {wrong}")
    if verb in NO_RUNS:
        return carry_out(parsed, events)
    begin_run(parsed.job)
    code = carry_out(parsed, events)
    if WORKER not in {thread.name for thread in threading.enumerate()}:  # else it would act after its summary
        end_run(parsed.job)
    return code


if __name__ == "__main__":
    os._exit(main())  # Ray's own end waits for half a second, and may hang as any call to Ray may
