"""The programs that load the files of `endpoints`, where they are present: nginx, Prometheus, Envoy, LiteLLM."""

from __future__ import annotations

import json
import os
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Protocol

import httpx

from fleetctl.demo.lifecycle import free_port
from tests.external_programs import find_program, running
from tests.hostile_cluster.readers import Named

TIMEOUT_S = 60.0


class Program(Protocol):
    """A program that loads one format."""

    @classmethod
    def start(cls, stack: ExitStack, folder: Path) -> Program | None:
        """Return the program, which ends with `stack`; None if it is not on this machine."""
        ...

    def load(self, text: str, named: Named) -> None:
        """Load a file; raises AssertionError unless the program finds exactly the `named` addresses in it."""
        ...


def _path_of(variable: str, name: str) -> str | None:
    return find_program(os.environ, variable, name, f"/usr/sbin/{name}")


def _run(*command: str | Path) -> None:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, f"{command[0]} refuses the file: {(done.stderr or done.stdout)[-500:]}"


class Nginx:
    """`nginx -t`: a file that adds a server, or names an upstream twice, is refused or does not parse as ours."""

    def __init__(self, program: str, folder: Path) -> None:
        self._file, self._config = folder / "upstreams", folder / "nginx.conf"
        temporary = " ".join(f"{kind}_temp_path {folder}/{kind};" for kind in (
            "client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        self._config.write_text(f"pid {folder}/pid; error_log stderr warn; events {{}}\n"
                                f"http {{ access_log off; {temporary}\ninclude {self._file};\n}}\n")
        self._command = (program, "-t", "-q", "-p", folder, "-e", "stderr", "-c", self._config)

    @classmethod
    def start(cls, _: ExitStack, folder: Path) -> Nginx | None:
        """Return nginx if it is on this machine."""
        program = _path_of("FLEETCTL_NGINX", "nginx")
        return cls(program, folder) if program else None

    def load(self, text: str, _: Named) -> None:
        """Let nginx test the file; what it names has been read by its grammar."""
        self._file.write_text(text, encoding="utf-8")
        _run(*self._command)


class Prometheus:
    """`promtool check service-discovery`: what Prometheus makes of the targets."""

    def __init__(self, program: str, folder: Path) -> None:
        self._program, self._file, self._config = program, folder / "targets.json", folder / "prometheus.yml"
        self._config.write_text(json.dumps({"scrape_configs": [
            {"job_name": "engines", "file_sd_configs": [{"files": [str(self._file)]}]}]}))

    @classmethod
    def start(cls, _: ExitStack, folder: Path) -> Prometheus | None:
        """Return promtool if it is on this machine."""
        program = _path_of("FLEETCTL_PROMTOOL", "promtool")
        return cls(program, folder) if program else None

    def load(self, text: str, _: Named) -> None:
        """Let promtool check the configuration with the file."""
        self._file.write_text(text, encoding="utf-8")
        _run(self._program, "check", "config", self._config)


class Envoy:
    """A running Envoy that follows the file; its administration page says which addresses it has."""

    CONFIGURATION = """\
node: {{id: x, cluster: x}}
admin: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}}}
dynamic_resources: {{cds_config: {{path_config_source: {{path: {file}}}, resource_api_version: V3}}}}
"""

    def __init__(self, folder: Path, port: int) -> None:
        self._file, self._log, self._url = folder / "clusters.yaml", folder / "envoy.log", f"http://127.0.0.1:{port}"
        self._file.write_text("resources: []\n")
        (folder / "envoy.yaml").write_text(self.CONFIGURATION.format(port=port, file=self._file))

    @classmethod
    def start(cls, stack: ExitStack, folder: Path) -> Envoy | None:
        """Start Envoy if it is on this machine."""
        program = _path_of("FLEETCTL_ENVOY", "envoy")
        if program is None:
            return None
        envoy = cls(folder, free_port())
        stack.enter_context(running(envoy._log, program, "-c", folder / "envoy.yaml", "-l", "warning",
                                    "--disable-hot-restart", "--concurrency", "1"))
        envoy._await_updates(1)
        return envoy

    def load(self, text: str, named: Named) -> None:
        """Replace the file, and compare Envoy's clusters with it."""
        accepted, refused = self._updates()
        new = self._file.with_suffix(".new")
        new.write_text(text, encoding="utf-8")
        new.rename(self._file)
        self._await_updates(accepted + refused + 1)
        assert self._updates()[1] == refused, f"Envoy refuses the file: {self._log.read_text()[-500:]}"
        clusters = httpx.get(f"{self._url}/clusters?format=json", timeout=TIMEOUT_S).json().get("cluster_statuses", [])
        found = set()
        for cluster in clusters:
            for host in cluster.get("host_statuses", []):
                at = host["address"]["socket_address"]
                name = f"[{at['address']}]" if ":" in at["address"] else at["address"]
                found.add((cluster["name"], f"{name}:{at['port_value']}"))
        assert found == set(named), f"Envoy has {sorted(found)}, the file {sorted(named)}"

    def _updates(self) -> tuple[int, int]:
        text = httpx.get(f"{self._url}/stats?filter=cluster_manager.cds.update_", timeout=TIMEOUT_S).text
        numbers = dict(line.rsplit(": ", 1) for line in text.splitlines() if ": " in line)
        return tuple(int(numbers.get(f"cluster_manager.cds.update_{kind}", 0)) for kind in ("success", "rejected"))

    def _await_updates(self, total: int) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                if sum(self._updates()) >= total:
                    return
            except httpx.TransportError:
                pass  # not yet up
            assert time.monotonic() < deadline, f"Envoy does not answer: {self._log.read_text()[-500:]}"
            time.sleep(0.02)


class LiteLLM:
    """LiteLLM's configuration model and router, in a process of their own, which loads a file per line of its input."""

    PROGRAM = """\
import json, os, sys, yaml
os.environ["TOKEN"] = "the-secret-of-the-router"
from litellm import Router
from litellm.proxy._types import ConfigYAML
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
for line in sys.stdin:
    document = yaml.safe_load(json.loads(line))
    ConfigYAML(**document)
    rows = Router(model_list=document["model_list"]).get_model_list() or []
    print(json.dumps([[row["model_name"], row["litellm_params"]["api_base"]] for row in rows]), file=out, flush=True)
"""

    def __init__(self, process: subprocess.Popen[str], log: IO[bytes]) -> None:
        self._process, self._log = process, log

    @classmethod
    def start(cls, stack: ExitStack, folder: Path) -> LiteLLM | None:
        """Start it if FLEETCTL_LITELLM_PYTHON names an interpreter with LiteLLM."""
        python = _path_of("FLEETCTL_LITELLM_PYTHON", "python-with-litellm")
        if python is None:
            return None
        log = stack.enter_context((folder / "litellm.log").open("w+b"))
        process = stack.enter_context(subprocess.Popen(
            [python, "-c", cls.PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            env={"LITELLM_LOCAL_MODEL_COST_MAP": "True", "HOME": str(folder)}))
        stack.callback(process.terminate)
        return cls(process, log)

    def load(self, text: str, named: Named) -> None:
        """Let LiteLLM load the file, and compare its deployments with it."""
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps(text), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            raise AssertionError(f"LiteLLM refuses the file: {self._log.read()[-500:].decode(errors='replace')}")
        found = {(name, base.removeprefix("http://").removesuffix("/v1")) for name, base in json.loads(line)}
        assert found == set(named), f"LiteLLM has {sorted(found)}, the file {sorted(named)}"


PROGRAMS: dict[str, type[Program]] = {
    "nginx": Nginx, "prometheus": Prometheus, "envoy": Envoy, "litellm": LiteLLM}
