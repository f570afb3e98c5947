"""Sets up the environment of a worker and becomes the worker, like Ray's own script of this name.

Ray's script imports all of Ray first, which takes a second of CPU before each worker of a job, and the worker then
imports it again.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import sys
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--serialized-runtime-env-context", default="{}")
parser.add_argument("--language")
options, worker = parser.parse_known_args()

context = json.loads(options.serialized_runtime_env_context)
for name, value in (context.get("env_vars") or {}).items():
    os.environ[name] = re.sub(r"\$\{[A-Z0-9_]+\}", "", os.path.expandvars(value))
if context.get("override_worker_entrypoint"):
    worker[0] = context["override_worker_entrypoint"]
elif worker[0].endswith("default_worker.py"):
    worker[0] = str(Path(__file__).with_name("default_worker.py"))
command = [*(context.get("command_prefix") or []), "exec", context.get("py_executable") or sys.executable,
           *map(shlex.quote, worker)]
os.execvp("bash", ["bash", "-c", " ".join(command)])
