"""Configurations made from endpoints, parsed as by their programs."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from fleetctl.documents.endpoints import Endpoint, Endpoints, ServedModel
from fleetctl.render.endpoint_formats import FORMATS, left_out, upstream_of


def endpoint(number: int, address: str = "10.0.0.1") -> Endpoint:
    return Endpoint(replica_id=number, group="main", role="Standalone", node="node-a", address=address,
                    port=9000 + number, path="/v1")


def model(key: str, *endpoints: Endpoint, name: str | None = None) -> ServedModel:
    return ServedModel(key=key, name=name or key, path="/v1", weight=2, endpoints=list(endpoints))


SERVED = Endpoints(observed_at="2026-03-04T12:00:00Z", source="x", fleet="lab", models=[
    model("org/m:1", endpoint(0), endpoint(1, "fd00::7"), name="small"), model("org/m 1"),
    model("org/m?1", endpoint(2)),
])


def test_litellm_has_a_deployment_per_endpoint():
    rows = yaml.safe_load(FORMATS["litellm"](SERVED))["model_list"]
    assert [(row["model_name"], row["litellm_params"]["api_base"]) for row in rows] == [
        ("small", "http://10.0.0.1:9000/v1"), ("small", "http://[fd00::7]:9001/v1"),
        ("org/m?1", "http://10.0.0.1:9002/v1")]
    assert {row["litellm_params"]["weight"] for row in rows} == {2}
    assert rows[0]["litellm_params"]["model"] == "openai/small"
    assert len({row["model_info"]["id"] for row in rows}) == 3


def test_prometheus_has_a_target_per_endpoint():
    targets = json.loads(FORMATS["prometheus"](SERVED))
    assert [target["targets"] for target in targets] == [["10.0.0.1:9000"], ["[fd00::7]:9001"], ["10.0.0.1:9002"]]
    assert targets[0]["labels"] == {"model": "org/m:1", "replica": "0", "group": "main", "copy": "0", "node": "node-a",
                                    "fleet": "lab"}
    for target in targets:
        assert all(re.fullmatch("[a-z]+", name) and isinstance(value, str) for name, value in target["labels"].items())


def test_envoy_has_a_cluster_per_name_even_without_endpoints():
    resources = yaml.safe_load(FORMATS["envoy"](SERVED))["resources"]
    assert [one["name"] for one in resources] == ["small", "org/m 1", "org/m?1"]
    assert [len(one["load_assignment"]["endpoints"][0]["lb_endpoints"]) for one in resources] == [2, 0, 1]
    assert resources[2] == {
        "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "org/m?1", "type": "STATIC",
        "load_assignment": {"cluster_name": "org/m?1", "endpoints": [{"lb_endpoints": [{
            "endpoint": {"address": {"socket_address": {"address": "10.0.0.1", "port_value": 9002}}},
            "load_balancing_weight": 2}]}]}}


def test_models_with_the_same_name_share_requests_by_their_weights():
    heavy = model("new", endpoint(3), name="small").model_copy(update={"weight": 5})
    shared = SERVED.model_copy(update={"models": [*SERVED.models, heavy]})
    first = FORMATS["nginx"](shared).partition("}")[0]
    assert re.findall(r"server (\S+) weight=(\d)", first)[-1] == ("10.0.0.1:9003", "5")
    assert FORMATS["nginx"](shared).count("upstream small") == 1
    [group] = [one["load_assignment"]["endpoints"][0]["lb_endpoints"]
               for one in yaml.safe_load(FORMATS["envoy"](shared))["resources"] if one["name"] == "small"]
    assert [one["load_balancing_weight"] for one in group] == [2, 2, 5]


def test_nginx_has_a_group_per_model_with_names_it_can_read():
    text = FORMATS["nginx"](SERVED)
    assert re.findall(r"^upstream (\S+) \{$", text, re.MULTILINE) == [
        "small", "org_m_1-5c09b698680a7202", "org_m_1-ac78464093ee52dd"]
    assert re.findall(r"^    server (\S+) weight=2;", text, re.MULTILINE) == [
        "10.0.0.1:9000", "[fd00::7]:9001", "10.0.0.1:9002"]
    assert "server 127.0.0.1:1 down;" in text


def test_the_vllm_router_has_as_many_models_as_backends():
    written = json.loads(FORMATS["vllm-router"](SERVED))
    assert written["static_backends"] == "http://10.0.0.1:9000,http://[fd00::7]:9001,http://10.0.0.1:9002"
    assert written["static_models"] == "small,small,org/m?1"


@pytest.mark.parametrize("output_format", FORMATS)
def test_a_hostile_key_breaks_no_format(output_format: str):
    hostile = 'a"; }\nserver evil:1;\n#\u2028{{'
    text = FORMATS[output_format](SERVED.model_copy(update={"models": [model(hostile, endpoint(0))]}))
    if output_format == "nginx":
        assert [line.partition("#")[0].strip() for line in text.splitlines()] == [
            f"upstream {upstream_of(hostile)} {{", "server 10.0.0.1:9000 weight=2;", "}"]
    else:
        assert yaml.safe_load(text)
