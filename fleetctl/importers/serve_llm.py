"""Ray's own LLM builder (`ray.serve.llm:build_openai_app`): the one Serve application whose engine is known by name.

An LLMConfig names a model, vLLM's engine arguments and the resources; vLLM takes the same arguments as flags. The
router in front of the models has no counterpart.
"""

from __future__ import annotations

import json
from typing import Any

from fleetctl.importers.accelerators import ACCELERATOR_LABEL
from fleetctl.importers.draft import Draft, filled, one_group
from fleetctl.importers.reading import Reading, is_taken
from fleetctl.importers.serve_fields import DEPLOYMENT, LLM_CONFIG, replica_count, report_runtime_env
from fleetctl.importers.serve_placement import read_bundle, resources_of, sum_of

BUILDERS = ("ray.serve.llm:build_openai_app", "ray.serve.llm.builders:build_openai_app")
_PARALLEL = ("tensor_parallel_size", "pipeline_parallel_size")


def read_llm_application(application: Reading, draft: Draft) -> None:
    """Add a model for every LLMConfig of an application to the draft."""
    application.skip("import_path")
    application.lose("name", "each model has its own model_id")
    arguments = application.child("args")
    for one in arguments.entries("llm_configs"):
        if one.is_mapping:
            _config(one, draft)
        else:
            one.lose(None, "a config in another file: write it in its place")
    arguments.lose_rest("there is no router: engines are called on their own ports")
    application.lose("runtime_env", "packages and files must be on the nodes; env_vars go to the engine's env")
    for deployment in application.items("deployments"):
        deployment.lose(None, "options of a deployment that the builder makes: give them in llm_configs")


def _config(source: Reading, draft: Draft) -> None:
    loading = source.child("model_loading_config")
    key = loading.text("model_id")
    if key is None:
        source.lose(None, "no model_id: the model is unknown")
        return
    if is_taken(source, key, draft):
        return
    source.goes_to(key)
    accelerator = source.text("accelerator_type")
    member = filled({"resources": _resources(source),
                     "nodeSelector": {ACCELERATOR_LABEL: accelerator} if accelerator else {},
                     "engine": _engine(source, loading, key)})
    deployment = source.child("deployment_config")
    replicas = replica_count(deployment)
    deployment.lose_each(DEPLOYMENT)
    source.lose_each(LLM_CONFIG)
    draft.add({"key": key, "replicas": replicas, "workers": one_group([member])}, source.place)


def _engine(source: Reading, loading: Reading, key: str) -> dict[str, Any]:
    model = loading.text("model_source") if isinstance(loading.peek("model_source"), str) else None
    if model is None:
        loading.lose("model_source", "a mirror in the cloud: the weights must be on the nodes, named in the command")
    flags = _flags(source)
    if flags:
        source.note("engine_kwargs", "written as the flags of `vllm serve`, on $(FLEETCTL_PORT): look them over",
                    "todo")
    args = ["--port", "$(FLEETCTL_PORT)"] + (["--served-model-name", key] if model not in (None, key) else [])
    engine = filled({"command": ["vllm", "serve", model or key], "args": [*args, *flags],
                     "env": source.child("runtime_env").child("env_vars").pairs()})
    report_runtime_env(source.child("runtime_env"))
    if source.peek("llm_engine") in ("vLLM", "VLLM"):
        source.skip("llm_engine")
    else:
        source.lose("llm_engine", "only vLLM is known, and its command is written: write the one that serves the model",
                    "todo")
    return engine


def _flags(source: Reading) -> list[str]:
    arguments = source.child("engine_kwargs")
    found = []
    for name in arguments.names:
        value, flag = arguments.peek(name), name.replace("_", "-")
        if value is None:
            arguments.lose(name, "null is not a flag: vLLM's default holds")
            continue
        arguments.at((*arguments.path, name)).take()
        if isinstance(value, bool):
            found.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            found.append(f"--{flag}={value if isinstance(value, (str, int, float)) else json.dumps(value)}")
    return found


def _resources(source: Reading) -> dict[str, Any]:
    """Return the GPUs of one replica: the sum of its bundles, or as many as the engine's ranks."""
    group = source.child("placement_group_config")
    bundles = group.items("bundles")
    _report_strategy(group, len(bundles))
    if bundles:
        return resources_of(sum_of([read_bundle(one) for one in bundles]))
    gpus = 1
    for name in _PARALLEL:
        ranks = source.peek("engine_kwargs", name)
        gpus *= ranks if isinstance(ranks, int) and ranks > 0 else 1
    source.note("engine_kwargs" if "engine_kwargs" in source else None,
                f"gpus: {gpus} for each replica, as tensor x pipeline parallel", "changed")
    return {"gpus": gpus}


def _report_strategy(group: Reading, bundles: int) -> None:
    """Say that all bundles of a replica become one member, which is on one node."""
    strategy = group.text("strategy") or "PACK"
    if strategy not in ("PACK", "STRICT_PACK"):
        group.note("strategy", f"{strategy}: a replica is one member, on one node", "lost")
    if bundles > 1:
        group.note("bundles", f"{bundles} bundles are written as one member with their sum, on one node",
                   "changed" if strategy == "STRICT_PACK" else "lost")
