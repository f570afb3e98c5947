"""Configurations made from endpoints, parsed as by their programs."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fleetctl.documents.answers import Endpoint, Endpoints, ServedModel
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


NAMES = st.text(st.sampled_from("aAb/_-.: 09f{;é\u2028"), min_size=1, max_size=12) | st.text(min_size=1, max_size=40)


@given(NAMES, NAMES)
def test_no_two_names_share_an_upstream_and_nginx_can_read_each(one: str, other: str):
    for name in (one, upstream_of(one), f"{one}-{'0' * 16}"):
        assert re.fullmatch("[a-z0-9._-]{1,128}", upstream_of(name))
        assert upstream_of(name) == upstream_of(name)
        assert (upstream_of(name) == upstream_of(other)) == (name == other)


@pytest.mark.parametrize("name", ["small", "llama-3.1-8b", "a_b", "0"])
def test_a_simple_name_is_its_own_upstream(name: str):
    assert upstream_of(name) == name


@pytest.mark.parametrize("output_format", FORMATS)
def test_no_model_moves_because_another_one_appears(output_format: str):
    """Each block of the text stays as it is, wherever the new model comes in the order."""
    before = blocks(output_format, SERVED)
    for key in ("org_m:1", "org/M:1", "ORG_M_1", "SMALL", f"small-{'0' * 16}", upstream_of("org/m 1"), "a", "a,b", "*"):
        for place in (0, 1, 3):
            models = [*SERVED.models[:place], model(key, endpoint(9)), *SERVED.models[place:]]
            after = blocks(output_format, SERVED.model_copy(update={"models": models}))
            assert [one for one in after if one in before] == before
            assert len(after) <= len(before) + 1


def blocks(output_format: str, served: Endpoints) -> list[str]:
    """The parts of a file, one for each model or endpoint."""
    text = FORMATS[output_format](served)
    if output_format == "nginx":
        return text.split("}\n")
    found = yaml.safe_load(text)
    if output_format == "vllm-router":
        return [" ".join(pair) for pair in zip(*(found[key].split(",") for key in ("static_backends", "static_models")),
                                               strict=True)]
    rows = found if isinstance(found, list) else next(value for value in found.values() if isinstance(value, list))
    return [json.dumps(row) for row in rows]


@pytest.mark.parametrize("key", [
    "1e5", "0x1F", "null", "~", "yes", "12:30:45", "1_000", "=", "<<", "- a", "a: b", "é\U0001f600", ".inf", "0o17",
    "2026-03-04", "&a", "*a", "!x", "%a", "@a", "`a", "'", '"', "\\", "{{a}}",
])
def test_a_key_stays_text_for_every_parser_of_yaml(key: str):
    quoted = yaml.dump(key, default_style='"', allow_unicode=True).strip()
    text = FORMATS["envoy"](SERVED.model_copy(update={"models": [model(key, endpoint(0))]}))
    assert text.count(f"name: {quoted}\n") == 2
    text = FORMATS["litellm"](SERVED.model_copy(update={"models": [model(key, endpoint(0))]}))
    assert (f"model_name: {quoted}\n" in text) == ("*" not in key)


@pytest.mark.parametrize("address", ["10.0.0.1; }", "localhost", "fe80::1%eth0", "", "0.0.0.0", "[::1]", "10.0.0.1:80"])
def test_an_endpoint_has_the_ip_address_of_a_machine(address: str):
    with pytest.raises(ValidationError, match="IP address"):
        endpoint(0, address)


@pytest.mark.parametrize("name", ["a,b", "*", "gpt-*", "os.environ/KEY"])
def test_a_name_with_a_meaning_of_its_own_is_left_out_with_a_reason(name: str):
    served = SERVED.model_copy(update={"models": [model(name, endpoint(0)), *SERVED.models]})
    left = {output_format: left_out(output_format, served) for output_format in FORMATS}
    assert [output_format for output_format, why in left.items() if why] == (
        ["vllm-router"] if name == "a,b" else ["litellm"])
    for output_format, why in left.items():
        if why:
            assert why[0].startswith(f"{name} is left out: ")
            assert FORMATS[output_format](served) == FORMATS[output_format](SERVED)


def test_every_format_has_the_weight_and_the_name_of_a_variant_where_it_has_such_a_thing() -> None:
    own = endpoint(1).model_copy(update={"variant": "a100", "weight": 7})
    served = SERVED.model_copy(update={"models": [model("org/m", endpoint(0), own)]})
    rows = yaml.safe_load(FORMATS["litellm"](served))["model_list"]
    assert [row["litellm_params"]["weight"] for row in rows] == [2, 7]
    targets = json.loads(FORMATS["prometheus"](served))
    assert [target["labels"].get("variant") for target in targets] == [None, "a100"]
    [cluster] = yaml.safe_load(FORMATS["envoy"](served))["resources"]
    [weighed] = cluster["load_assignment"]["endpoints"]
    assert [one["load_balancing_weight"] for one in weighed["lb_endpoints"]] == [2, 7]
    assert re.findall(r"weight=(\d+);", FORMATS["nginx"](served)) == ["2", "7"]
    assert json.loads(FORMATS["vllm-router"](served))["static_models"] == "org/m,org/m"
    found = json.loads(FORMATS["json"](served))["models"][0]["endpoints"]
    assert [(one.get("variant"), one.get("weight")) for one in found] == [(None, None), ("a100", 7)]
