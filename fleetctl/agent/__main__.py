"""The job's entry point: `python -m fleetctl_agent apply|evict`; the request lies in the job's plan package."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Dict

import ray
from ray import cloudpickle

from .apply import run_apply
from .events import EventStream

JOB_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"


def read_request() -> Dict[str, Any]:
    """Return the request the client packed beside the agent, and remove it: its plan holds env values."""
    packed = Path("fleetctl_request.json")
    found: Dict[str, Any] = json.loads(packed.read_text(encoding="utf-8"))
    packed.unlink()
    return found


def keep_package_to_ourselves() -> None:
    """Take our package out of what actors inherit from this job: its plan is nothing for a replica's node to keep."""
    config = json.loads(os.environ.get(JOB_CONFIG, "{}"))
    if config.pop("runtime_env", None) is not None:
        os.environ[JOB_CONFIG] = json.dumps(config)
    cloudpickle.register_pickle_by_value(sys.modules[__package__])


def main() -> int:
    """Connect to the cluster we run in and do what the request says."""
    request, events = read_request(), EventStream()
    keep_package_to_ourselves()
    ray.init(address="auto", namespace=request["namespace"], logging_level="ERROR", log_to_driver=False)
    if sys.argv[1:] == ["evict"]:
        from .evict import run_evict

        return run_evict(request, events)
    return run_apply(request, events)


if __name__ == "__main__":
    sys.exit(main())
