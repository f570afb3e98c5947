"""A fleet of vLLM replicas with tiny models: its file, its requests, its processes, what it keeps in shared memory."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
from cluster import parent_of
from e2e_world import World

ENV = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1",
       "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_SERVER_DEV_MODE": "1"}
STARTS_S = 600.0
PROMPT = " ".join(f"{number} the quick brown fox" for number in range(25))
"""Long enough for several blocks of the prefix cache."""


class VllmWorld:
    """The fleet of the tests; what they measure is printed."""

    def __init__(self, world: World, environment: Path) -> None:
        self.world, self.fleet, self.folder = world, world.fleet, world.tmp_path
        self.vllm = str(environment / "venv" / "bin" / "vllm")

    def member(self, *flags: str, model: str | None = None, role: str | None = None, **env: str) -> dict[str, Any]:
        """A member that serves a model by vLLM; `model` = its folder, by default the first of the tiny ones."""
        folder = model or str(self.folder / "one")
        ready = {"readiness": {"http": {"path": "/health"}, "period": "500ms"}} if role != "Worker" else {}
        serves = ["--served-model-name", "tiny", "--port", "$(FLEETCTL_PORT)"] if role != "Worker" else ["--headless"]
        return {"resources": {"gpus": 1}, **({"role": role} if role else {}), "engine": {
            "command": [self.vllm, "serve", folder],
            "args": [*serves, "--max-model-len", "512", "--enforce-eager", *flags], "env": {**ENV, **env}, **ready}}

    def model(self, key: str, *members: dict[str, Any], **more: Any) -> dict[str, Any]:
        """A model of one replica."""
        return {"key": key, "replicas": 1, "startupTimeout": f"{STARTS_S:g}s", "restart": {"max": 3, "backoff": "1s"},
                "workers": [{"name": "main", "members": list(members)}], **more}

    def index(self, name: str) -> str:
        """Index one of the tiny models, and return the index."""
        printed = self.world.run("weights", "index", self.folder / name).stdout
        return re.findall("index: ([0-9a-f]{64})", printed)[0]

    def apply(self, *models: dict[str, Any]) -> dict[str, Any]:
        """Write the file, apply it, and return the outcomes by replica."""
        self.world.write(*models)
        summary = self.world.apply_result()
        return {f"{one['model']}/{one['replicaId']}": one for one in summary["outcomes"]}

    def status(self) -> dict[str, dict[str, Any]]:
        """The replicas of the fleet by model."""
        return {one["model"]: one for one in self.world.replicas()}

    def address(self, model: str) -> str:
        """The base URL of a model's replica."""
        [member, *_] = self.status()[model]["members"]
        return f"http://{member['address']}:{member['port']}"

    def ask(self, model: str, prompt: str = PROMPT, **more: Any) -> str:
        """Return the answer to a prompt."""
        answer = httpx.post(f"{self.address(model)}/v1/completions", timeout=120, trust_env=False, json={
            "model": "tiny", "prompt": prompt, "max_tokens": 16, "temperature": 0, **more})
        answer.raise_for_status()
        text: str = answer.json()["choices"][0]["text"]
        return text

    def stream(self, model: str, tokens: int, **more: Any) -> Iterator[str]:
        """Yield the lines of a long answer as they come."""
        with httpx.stream("POST", f"{self.address(model)}/v1/completions", timeout=120, trust_env=False, json={
                "model": "tiny", "prompt": "fox", "max_tokens": tokens, "temperature": 1, "ignore_eos": True,
                "stream": True, **more}) as answer:
            yield from answer.iter_lines()

    def log(self, replica: str) -> str:
        """The log of a replica."""
        return self.world.run("logs", replica).stdout

    def engines(self) -> list[int]:
        """The processes of all engines; vLLM writes over the environment of some, so these count by name."""
        return sorted({*self.world.engines(), *self.named("")})

    def named(self, title: str) -> list[int]:
        """The processes that vLLM has given names with this, such as `VLLM::EngineCore`."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                name = (entry / "cmdline").read_bytes().decode(errors="replace")
                found += [int(entry.name)] if name.startswith("VLLM::") and title in name else []
        return found

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Print how long something took."""
        begun = time.monotonic()
        yield
        print(json.dumps({"measured": what, "seconds": round(time.monotonic() - begun, 1), "load": os.getloadavg()[0]}))


def environment_of(pid: int) -> dict[str, str]:
    """The environment with which a process was started, or if it has been written over, its parent's."""
    pairs = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    found = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    return found if "FLEETCTL_RANK" in found else environment_of(parent_of(pid))


def shared_memory() -> set[str]:
    """What lies in the host's shared memory, except Ray's."""
    return {path.name for path in Path("/dev/shm").iterdir() if not path.name.startswith(("plasma", "ray"))}
