"""The example with a real model: `make example` starts it, and the model's answers come from every replica."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "fleets" / "real-model"


@pytest.mark.ray
def test_the_example_is_answered_by_the_model_of_each_replica() -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "FLEETCTL_"))}
    done = subprocess.run(
        ["timeout", "280", EXAMPLE / "run.sh"], text=True, capture_output=True, check=False,
        env={**env, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"})
    assert done.returncode == 0, done.stdout + done.stderr
    answers = re.findall(r"^  (\S+): (\w+), [\d.]+% sure \(replica (\d)\)$", done.stdout, re.MULTILINE)
    kinds = {"ask.py": "python", "fleet.yaml": "yaml", "magika_engine.py": "python", "run.sh": "shell",
             "README.md": "markdown"}
    assert answers == [(name, kind, replica) for replica in "01" for name, kind in kinds.items()]
    assert "the demo cluster is down" in done.stderr
