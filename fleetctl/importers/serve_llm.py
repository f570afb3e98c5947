"""Imports applications of Ray's LLM builders (`ray.serve.llm:build_openai_app` and others), whose engine is vLLM.

An LLMConfig has a model, vLLM's engine arguments and the resources; vLLM takes the same arguments as flags. The
router in front of the models has no counterpart. One replica is a member with the cards of all its ranks, or a gang
with one member per pipeline stage: tensor parallel ranks share a node, pipeline stages may be on several nodes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from fleetctl.documents.selector import ACCELERATOR_LABEL
from fleetctl.importers.draft import PLACEHOLDER, Draft, filled, one_group
from fleetctl.importers.reading import Reading, is_duplicate
from fleetctl.importers.serve_fields import DEPLOYMENT, LLM_CONFIG, replica_count, report_runtime_env
from fleetctl.importers.serve_placement import Bundle, gang_members, member_of, read_bundle, sum_of, whole_cards

_MAX_RANKS = 1024
BUILDERS = [f"{module}:build_{what}openai_app" for module in ("ray.serve.llm", "ray.serve.llm.builders")
            for what in ("", "dp_", "pd_")]
_ROLES = {"llm_config": "", "prefill_config": "prefill", "decode_config": "decode"}
"""Arguments that hold one LLMConfig, and the suffix of its model key."""
_JOIN_FLAGS = ("--nnodes=$(FLEETCTL_GROUP_SIZE)", "--node-rank=$(FLEETCTL_RANK)",
               "--master-addr=$(FLEETCTL_LEADER_ADDRESS)", "--master-port=$(FLEETCTL_LEADER_PORT)")
"""The flags by which vLLM's processes on several nodes find each other; all but the first are `--headless`."""


def read_llm_application(application: Reading, draft: Draft) -> None:
    """Add a model for every LLMConfig of an application to the draft."""
    application.skip("import_path")
    application.lose("name", "each model has its own model_id")
    runtime_env = application.child("runtime_env")
    shared, before = runtime_env.child("env_vars").pairs(), len(draft.models)
    arguments = application.child("args")
    for one in arguments.entries("llm_configs"):
        _config(one, "", shared, draft)
    for name, role in _ROLES.items():
        is_here = isinstance(arguments.peek(name), dict)
        _config(arguments.child(name) if is_here else arguments.at((*arguments.path, name)), role, shared, draft)
    arguments.lose_rest("there is no router: call engines on their own ports")
    if len(draft.models) == before:
        runtime_env.lose("env_vars", "no model of this application is imported")
    report_runtime_env(runtime_env)
    for deployment in application.items("deployments"):
        deployment.lose(None, "options of a deployment made by the builder: write them in its LLMConfig")


def _config(source: Reading, role: str, shared: Mapping[str, str], draft: Draft) -> None:
    if not source.is_mapping:
        source.lose(None, "a config in another file: write its content here")
        return
    loading = source.child("model_loading_config")
    name = loading.text("model_id")
    if not name:
        source.lose(None, "no model_id: the model is unknown")
        return
    key = f"{name}/{role}" if role else name
    if is_duplicate(source, key, draft):
        return
    source.goes_to(key)
    if role:
        source.note(None, f"{role} of {name} is a model of its own here: its callers must pass requests from prefill "
                          "to decode", "todo")
    engine = _engine(source, loading, name, shared)
    deployment = source.child("deployment_config")
    replicas = replica_count(deployment)
    deployment.lose_each(DEPLOYMENT)
    source.lose_each(LLM_CONFIG)
    draft.add({"key": key, "replicas": replicas, **llm_groups(source, engine)}, source.place)


def _engine(source: Reading, loading: Reading, name: str, shared: Mapping[str, str]) -> dict[str, Any]:
    weights = _weights(loading, name)
    flags = _flags(source.child("engine_kwargs"))
    if flags:
        source.note("engine_kwargs", "written as flags of `vllm serve`, on $(FLEETCTL_PORT): check them", "todo")
    named = weights == name or source.child("engine_kwargs").peek("served_model_name") is not None
    args = ["--port", "$(FLEETCTL_PORT)"] + ([] if named else ["--served-model-name", name])
    runtime_env = source.child("runtime_env")
    engine = filled({"command": ["vllm", "serve", weights] if weights else [PLACEHOLDER], "args": [*args, *flags],
                     "env": {**shared, **runtime_env.child("env_vars").pairs()},
                     "readiness": {"http": {"path": "/health"}}})
    report_runtime_env(runtime_env)
    if source.peek("llm_engine") in ("vLLM", "VLLM"):
        source.skip("llm_engine")
    else:
        source.lose("llm_engine", "only vLLM is known, and its command is used: write the one that serves the model",
                    "todo")
    return engine


def _weights(loading: Reading, name: str) -> str | None:
    """Return the model that vLLM loads; None, reported, if Ray copies it from a bucket to the node first."""
    if not isinstance(loading.peek("model_source"), dict):
        return loading.text("model_source") or name
    bucket = loading.child("model_source").text("bucket_uri")
    loading.note("model_source", f"Ray copies the weights from {bucket or 'a mirror'} to the node, fleetctl does not: "
                                 "put them on the nodes, and write `vllm serve PATH` as the command", "todo")
    loading.child("model_source").lose_rest("nothing is copied to the nodes")
    return None


def _flags(arguments: Reading) -> list[str]:
    found = []
    for name in arguments.names:
        value, flag = arguments.peek(name), name.replace("_", "-")
        if value is None:
            arguments.lose(name, "null is not a flag: vLLM's default applies")
        elif (name, value) == ("distributed_executor_backend", "ray"):
            arguments.lose(name, "vLLM would ask Ray for the cards that its replica already has")
        elif name == "port":
            arguments.lose(name, "the engine listens on $(FLEETCTL_PORT), which its readiness probes")
        else:
            arguments.at((*arguments.path, name)).take()
            written = f"={value if isinstance(value, (str, int, float)) else json.dumps(value)}"
            found.append(f"--no-{flag}" if value is False else f"--{flag}{'' if value is True else written}")
    return found


def llm_groups(source: Reading, engine: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `workers` of an LLMConfig, and `placement` for a gang."""
    tensor, stages, data = (_degree(source, f"{what}_parallel_size") for what in ("tensor", "pipeline", "data"))
    accelerator = source.text("accelerator_type")
    selector = {ACCELERATOR_LABEL: accelerator} if accelerator else {}
    group = source.child("placement_group_config")
    strategy = group.text("strategy") or "PACK"
    bundles, is_written = _bundles(group, tensor * stages)
    if strategy == "STRICT_PACK" or len(bundles) % stages:
        stages = 1
    _report_strategy(group, strategy, len(bundles) if is_written and stages == 1 else 0)
    each = len(bundles) // stages
    claims = [whole_cards(source, "placement_group_config", sum_of(bundles[first:first + each], times=data))
              for first in range(0, len(bundles), each)]
    _report_cards(source, claims, data, is_written=is_written)
    if stages == 1:
        return {"workers": one_group([member_of(claims[0], selector, engine)])}
    leader = {**engine, "args": [*engine["args"], *_JOIN_FLAGS]}
    worker = {**leader, "args": [*leader["args"], "--headless"], "readiness": None}
    members = [member_of(claim, selector, filled(worker if rank else leader)) for rank, claim in enumerate(claims)]
    return {"placement": {"ranksPerNode": stages}, "workers": one_group(gang_members(members))}


def _degree(source: Reading, name: str) -> int:
    ranks = source.peek("engine_kwargs", name)
    if ranks is None or (isinstance(ranks, int) and 1 <= ranks <= _MAX_RANKS):
        return ranks or 1
    source.child("engine_kwargs").note(name, f"not a number of ranks up to {_MAX_RANKS}: gpus are for 1", "todo")
    return 1


def _bundles(group: Reading, ranks: int) -> tuple[list[Bundle], bool]:
    """Return a bundle for each rank, and whether the input has them; by default Ray gives every rank one card."""
    each = group.child("bundle_per_worker")
    written = [read_bundle(each)] * ranks if each.names else [read_bundle(one) for one in group.items("bundles")]
    return written or [{"GPU": Decimal(1)}] * ranks, bool(written)


def _report_strategy(group: Reading, strategy: str, bundles: int) -> None:
    """Report that the bundles of a replica, or of a stage, become one member, which is on one node."""
    if strategy not in ("PACK", "STRICT_PACK"):
        group.note("strategy", f"{strategy}: a replica, or a stage of it, is one member on one node", "lost")
    if bundles > 1 and "bundles" in group:
        group.note("bundles", f"{bundles} bundles become one member with their sum, on one node",
                   "changed" if strategy == "STRICT_PACK" else "lost")


def _report_cards(source: Reading, claims: list[Bundle], data: int, *, is_written: bool) -> None:
    gpus = claims[0].get("GPU", Decimal(0))
    key = "engine_kwargs" if "engine_kwargs" in source else None
    if len(claims) > 1:
        source.note(key, f"a gang of {len(claims)} members with {gpus} GPUs each, one per pipeline stage: a vLLM "
                         "without --nnodes needs another command", "todo")
    if data > 1:
        source.note(key, f"gpus: {gpus} on one node, for {data} data parallel ranks; Ray may put them on several "
                         "nodes: for that write a gang", "todo")
    elif len(claims) == 1 and not is_written:
        source.note(key, f"gpus: {gpus} per replica, from tensor x pipeline parallel", "changed")
