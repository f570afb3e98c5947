"""The endpoints as configuration of load balancers and monitors. Each function returns the text of a whole file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

import yaml

from fleetctl.documents.canonical import indented_json
from fleetctl.documents.endpoints import Endpoint, Endpoints, ServedModel
from fleetctl.documents.quantity import grouped

CLUSTER_TYPE = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
NO_SERVER = "server 127.0.0.1:1 down;  # no replica is ready"
"""nginx refuses an `upstream` without servers."""


def as_litellm(served: Endpoints) -> str:
    """Return a `model_list` for LiteLLM's proxy: a deployment per endpoint. The engines need no key; LiteLLM does."""
    rows = [{"model_name": model.name,
             "litellm_params": {"model": f"openai/{model.name}", "api_base": one.url, "api_key": "none",
                                "weight": model.weight},
             "model_info": {"id": f"{model.key}/{one.replica_id}/{one.group}/{one.copy_index}"}}
            for model in served.models for one in model.endpoints]
    return str(yaml.safe_dump({"model_list": rows}, sort_keys=False, allow_unicode=True))


def as_prometheus(served: Endpoints) -> str:
    """Return targets for Prometheus' file_sd, one per endpoint."""
    targets = [{"targets": [one.host_port],
                "labels": {"model": model.key, "replica": str(one.replica_id), "group": one.group,
                           "copy": str(one.copy_index), "node": one.node,
                           **({"fleet": served.fleet} if served.fleet else {})}}
               for model in served.models for one in model.endpoints]
    return json.dumps(targets, indent=2, ensure_ascii=False) + "\n"


def as_envoy(served: Endpoints) -> str:
    """Return a CDS answer for Envoy's file-based subscription: a cluster per name.

    An EDS file may hold only one cluster; Envoy refuses more with "Unexpected EDS resource length".
    """
    resources = [{"@type": CLUSTER_TYPE, "name": name, "type": "STATIC", "load_assignment": {
        "cluster_name": name, "endpoints": [{"lb_endpoints": [
            {"endpoint": {"address": {"socket_address": {"address": one.address, "port_value": one.port}}},
             "load_balancing_weight": model.weight} for model, one in group]}]}}
        for name, group in _by_name(served).items()]
    return str(yaml.safe_dump({"resources": resources}, sort_keys=False, allow_unicode=True))


def as_nginx(served: Endpoints) -> str:
    """Return an `upstream` per name, for inclusion in nginx's `http` block."""
    blocks, taken = [], set[str]()
    for name, group in _by_name(served).items():
        servers = [f"server {one.host_port} weight={model.weight};  # {_comment(model, one)}"
                   for model, one in group] or [NO_SERVER]
        blocks.append("\n".join([f"upstream {_upstream(name, taken)} {{", *(f"    {line}" for line in servers), "}"]))
    return "\n".join(blocks) + "\n"


def as_vllm_router(served: Endpoints) -> str:
    """Return a dynamic configuration for vLLM's production-stack router."""
    pairs = [(f"http://{one.host_port}", model.name) for model in served.models for one in model.endpoints]
    return json.dumps({"service_discovery": "static", "routing_logic": "roundrobin",
                       "static_backends": ",".join(url for url, _ in pairs),
                       "static_models": ",".join(name for _, name in pairs)}, indent=2) + "\n"


FORMATS: Mapping[str, Callable[[Endpoints], str]] = {
    "json": indented_json, "litellm": as_litellm, "prometheus": as_prometheus, "envoy": as_envoy, "nginx": as_nginx,
    "vllm-router": as_vllm_router,
}


def _by_name(served: Endpoints) -> dict[str, list[tuple[ServedModel, Endpoint]]]:
    """Group the endpoints by the model name in requests; models with the same name share requests by weight."""
    found: dict[str, list[tuple[ServedModel, Endpoint]]] = {model.name: [] for model in served.models}
    return found | grouped((model.name, (model, one)) for model in served.models for one in model.endpoints)


def _upstream(name: str, taken: set[str]) -> str:
    """Return a unique upstream name of letters, digits, `.`, `_` and `-`: nginx has no quotes there."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", name)
    candidates = (plain, *(f"{plain}_{number}" for number in range(1, len(taken) + 1)))
    chosen = next(candidate for candidate in candidates if candidate not in taken)
    taken.add(chosen)
    return chosen


def _comment(model: ServedModel, one: Endpoint) -> str:
    plain = re.sub(r"[^!-~]+", "_", model.key)
    return f"{plain}/{one.replica_id}"
