"""Runs action.yml as GitHub's runner does: expressions only in values, each `run` a bash script with its own env."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from offline_python import OFFLINE, offline_python
from runner_files import read_outputs

ROOT = Path(__file__).parents[1]
EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")


def load_action() -> dict[str, Any]:
    action: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
    return action


@dataclass(frozen=True)
class ActionRun:
    """The result of a run of the action; the first step that fails ends it."""

    code: int
    log: str
    outputs: dict[str, str]
    used: tuple[str, ...]


class ActionRunner:
    """One runner: its temporary folder is kept, so the action's own environment is made once."""

    def __init__(self, folder: Path) -> None:
        self.action_path, self.temp = folder / "action", folder / "temp"
        self._bin = offline_python(folder / "bin")
        self.temp.mkdir()
        for name in ("fleetctl", "requirements"):  # the checkout of the action, without the files that only tests need
            shutil.copytree(ROOT / name, self.action_path / name)

    def install(self) -> ActionRun:
        """Run the steps before the last one."""
        return self._steps(load_action()["runs"]["steps"][:-1], {}, {}, ROOT)

    def use(self, environment: Path) -> None:
        """Use an existing environment, in place of the one that the steps before the last would make."""
        (self.temp / "fleetctl").symlink_to(environment)

    def run(self, inputs: Mapping[str, str], environ: Mapping[str, str], place: Path) -> ActionRun:
        """Run the last step, fleetctl's own, as a job with `environ` does in the checkout `place`."""
        return self._steps(load_action()["runs"]["steps"][-1:], inputs, environ, place)

    def _steps(self, steps: list[dict[str, Any]], inputs: Mapping[str, str], environ: Mapping[str, str], place: Path
               ) -> ActionRun:
        action = load_action()
        assert inputs.keys() <= action["inputs"].keys()
        output = self.temp / "output"
        output.write_text("")
        known = {
            **{f"inputs.{name}": inputs.get(name, evaluate(one.get("default", ""), {"github.token": ""}))
               for name, one in action["inputs"].items()},
            **{f"env.{name}": value for name, value in environ.items()},
        }
        used, log = [], ""
        for step in steps:
            if "uses" in step:
                used.append(step["uses"])
                continue
            done = self._bash(step, known, {**environ, "GITHUB_OUTPUT": str(output)}, place)
            log += done.stdout
            if done.returncode:
                return ActionRun(done.returncode, log, read_outputs(output), tuple(used))
        return ActionRun(0, log, read_outputs(output), tuple(used))

    def _bash(self, step: dict[str, Any], known: Mapping[str, str], environ: Mapping[str, str], place: Path
              ) -> subprocess.CompletedProcess[str]:
        assert step["shell"] == "bash"
        script = self.temp / "step.sh"
        script.write_text(step["run"])  # verbatim: it may contain no expression
        env = {"PATH": f"{self._bin}:{os.environ['PATH']}", "HOME": str(self.temp), "RUNNER_TEMP": str(self.temp),
               "GITHUB_ACTION_PATH": str(self.action_path), **OFFLINE, **environ,
               **{name: evaluate(value, known) for name, value in step.get("env", {}).items()}}
        folder = place / evaluate(step.get("working-directory", "."), known)
        return subprocess.run(["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)], cwd=folder, env=env,
                              text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=240, check=False)


def evaluate(text: str, known: Mapping[str, str]) -> str:
    """Evaluate the few kinds of expression in use: names, and `a || b`."""
    def value(match: re.Match[str]) -> str:
        return next((found for name in match[1].split("||") if (found := known.get(name.strip(), ""))), "")

    return EXPRESSION.sub(value, text)
