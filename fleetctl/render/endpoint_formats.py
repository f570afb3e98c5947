"""The endpoints as a report: a row per endpoint, and a row per model without one. And as configuration of load
balancers and monitors: each function returns the text of a whole file.

Any program on the cluster can start a replica of a model with any key. So each format quotes keys and names by its own
grammar, what it derives from a name depends on that name alone, and a name with a meaning of its own is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from math import inf

import yaml

from fleetctl.documents.answers import Endpoint, Endpoints, ServedModel
from fleetctl.documents.canonical import indented_json
from fleetctl.documents.quantity import count_of, grouped
from fleetctl.render.report.model import VARIANT, Column, Report, Table

CLUSTER_TYPE = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
NO_SERVER = "server 127.0.0.1:1 down;  # no replica is ready"
"""nginx refuses an `upstream` without servers."""
NAMELESS = frozenset({"table", "json", "prometheus"})
"""The formats that list models without a name in requests."""
DIGEST = 16
"""Hexadecimal digits at the end of an upstream's name, against two names that differ only in other characters."""
_PLAIN_UPSTREAM = re.compile(rf"(?!.*-[0-9a-f]{{{DIGEST}}}$)[a-z0-9._-]{{1,128}}")
COLUMNS = (Column("replica", "replica", name=True), Column("url", "url", name=True),
           Column("name", "name", name=True, terminal="beside"), Column("group", "group", name=True, terminal="beside"),
           Column("node", "node", name=True, terminal="beside"))


class _Text(str):
    """Text from outside, always in quotes: parsers of YAML differ in what they read as a number."""

    __slots__ = ()


class _Yaml(yaml.SafeDumper):
    """Writes `_Text` in quotes, and everything else as PyYAML does."""


_Yaml.add_representer(_Text, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"'))


def left_out(output_format: str, served: Endpoints) -> list[str]:
    """Return a warning for each model that this format leaves out: without a name, or with one of other meaning there.

    A table and the JSON leave none out, and warn of those without a name.
    """
    found = [f"{model.key} is left out: {why}; give it another `serving.name`"
             for model in served.models if (why := _other_meaning(output_format, model))]
    out = "" if output_format in NAMELESS else "is left out: it "
    return found + [f"{model.key} {out}has no name in requests, as its key cannot be one; give it a `serving.name`"
                    for model in served.models if not model.name]


def _other_meaning(output_format: str, model: ServedModel) -> str | None:
    if output_format == "vllm-router" and "," in model.name:
        return f"its name {model.name} has a comma, which separates names there"
    if output_format == "litellm" and "*" in model.name:
        return f"its name {model.name} has a *, which stands for the names of other models there"
    if output_format == "litellm" and any(text.startswith("os.environ/") for text in (model.name, model.key)):
        return "LiteLLM replaces os.environ/NAME by the value of that variable"
    return None


def _deployments(output_format: str, served: Endpoints) -> Iterator[tuple[ServedModel, Endpoint]]:
    for model in served.models:
        if model.name and _other_meaning(output_format, model) is None:
            yield from ((model, one) for one in model.endpoints)


def as_litellm(served: Endpoints) -> str:
    """Return a `model_list` for LiteLLM's proxy: a deployment per endpoint. The engines need no key; LiteLLM does."""
    rows = [{"model_name": _Text(model.name),
             "litellm_params": {"model": _Text(f"openai/{model.name}"), "api_base": _Text(one.url), "api_key": "none",
                                "weight": model.weight_of(one)},
             "model_info": {"id": _Text(f"{model.key}/{one.replica_id}/{one.group}/{one.copy_index}")}}
            for model, one in _deployments("litellm", served)]
    return _yaml({"model_list": rows})


def as_prometheus(served: Endpoints) -> str:
    """Return targets for Prometheus' file_sd, one per endpoint."""
    targets = [{"targets": [one.host_port],
                "labels": {"model": model.key, "replica": str(one.replica_id), "group": one.group,
                           "copy": str(one.copy_index), "node": one.node,
                           **({"variant": one.variant} if one.variant else {}),
                           **({"fleet": served.fleet} if served.fleet else {})}}
               for model in served.models for one in model.endpoints]
    return json.dumps(targets, indent=2, ensure_ascii=False) + "\n"


def as_envoy(served: Endpoints) -> str:
    """Return a CDS answer for Envoy's file-based subscription: a cluster per name.

    An EDS file may hold only one cluster; Envoy refuses more with "Unexpected EDS resource length".
    """
    resources = [{"@type": CLUSTER_TYPE, "name": _Text(name), "type": "STATIC", "load_assignment": {
        "cluster_name": _Text(name), "endpoints": [{"lb_endpoints": [
            {"endpoint": {"address": {"socket_address": {"address": _Text(one.address), "port_value": one.port}}},
             "load_balancing_weight": model.weight_of(one)} for model, one in group]}]}}
        for name, group in _by_name(served).items()]
    return _yaml({"resources": resources})


def _yaml(document: Mapping[str, object]) -> str:
    return str(yaml.dump(document, Dumper=_Yaml, sort_keys=False, allow_unicode=True, width=inf))


def as_nginx(served: Endpoints) -> str:
    """Return an `upstream` per name, for inclusion in nginx's `http` block."""
    blocks = []
    for name, group in _by_name(served).items():
        servers = [f"server {one.host_port} weight={model.weight_of(one)};  # {re.sub('[^!-~]+', '_', model.key)}/"
                   f"{one.replica_id}" for model, one in group] or [NO_SERVER]
        blocks.append("\n".join([f"upstream {upstream_of(name)} {{", *(f"    {line}" for line in servers), "}"]))
    return "\n".join(blocks) + "\n"


def as_vllm_router(served: Endpoints) -> str:
    """Return a dynamic configuration for vLLM's production-stack router."""
    pairs = [(f"http://{one.host_port}", model.name) for model, one in _deployments("vllm-router", served)]
    return json.dumps({"service_discovery": "static", "routing_logic": "roundrobin",
                       "static_backends": ",".join(url for url, _ in pairs),
                       "static_models": ",".join(name for _, name in pairs)}, indent=2) + "\n"


FORMATS: Mapping[str, Callable[[Endpoints], str]] = {
    "json": indented_json, "litellm": as_litellm, "prometheus": as_prometheus, "envoy": as_envoy, "nginx": as_nginx,
    "vllm-router": as_vllm_router,
}


def _by_name(served: Endpoints) -> dict[str, list[tuple[ServedModel, Endpoint]]]:
    """Group the endpoints by the model name in requests; models with the same name share requests by weight."""
    named = [model for model in served.models if model.name]
    found: dict[str, list[tuple[ServedModel, Endpoint]]] = {model.name: [] for model in named}
    return found | grouped((model.name, (model, one)) for model in named for one in model.endpoints)


def upstream_of(name: str) -> str:
    """Return the name of a model's `upstream`, which depends on the model's name alone; no two names share one.

    nginx has no quotes there, and ignores case. A name of lower-case letters, digits, `.`, `_` and `-` stays as it is;
    any other gets a digest, and so does a name that looks as if it had one.
    """
    if _PLAIN_UPSTREAM.fullmatch(name):
        return name
    plain = re.sub(r"[^a-z0-9._-]+", "_", name.lower())[:64]
    return f"{plain}-{sha256(name.encode(errors='backslashreplace')).hexdigest()[:DIGEST]}"


def endpoints_report(served: Endpoints) -> Report:
    """Return the report of `endpoints`; the name column is empty if the name is the key."""
    in_variants = any(one.variant for model in served.models for one in model.endpoints)
    rows = []
    for model in served.models:
        name = "" if model.name == model.key else model.name or "none"
        rows += [(f"{model.key}/{one.replica_id}", *([one.variant or ""] if in_variants else []), one.url, name,
                  one.group, one.node) for one in model.endpoints] or [
                 (model.key, *([""] if in_variants else []), "none is ready", name, "", "")]
    total = sum(len(model.endpoints) for model in served.models)
    columns = (COLUMNS[0], VARIANT, *COLUMNS[1:]) if in_variants else COLUMNS
    table = Table("endpoint", "Endpoints", columns, tuple(rows), beside_from=0)
    return Report(kind="answer", title="Endpoints", tables=(table,) if rows else (),
                  conclusion=f"{count_of(total, 'endpoint')} of {count_of(len(served.models), 'model')}")
