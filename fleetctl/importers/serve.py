"""Imports Ray Serve configs (`applications:`): the replicas of each deployment, and the resources of each replica.

A Serve replica is Python code in an actor, without a command line, so the command is a placeholder. Only for Ray's own
LLM builders (`ray.serve.llm:build_openai_app` and others) is the engine known, vLLM: an LLMConfig has a model, vLLM's
engine arguments and the resources, and vLLM takes the same arguments as flags. The router in front of these models has
no counterpart. One replica of them is a member with the cards of all its ranks, or a gang with one member per pipeline
stage: tensor parallel ranks share a node, pipeline stages may be on several nodes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import groupby
from typing import Any

from fleetctl.documents.selector import ACCELERATOR_LABEL
from fleetctl.importers.container import podman_command, show_cards
from fleetctl.importers.draft import PLACEHOLDER, Draft, bytes_text, filled, one_group
from fleetctl.importers.reading import Reading, is_duplicate

TOP = {
    "proxy_location": "there is no proxy: call engines on their own ports",
    "http_options": "there is no proxy: call engines on their own ports",
    "grpc_options": "there is no proxy: call engines on their own ports",
    "logging_config": "each engine configures its own logs",
    "target_capacity": "replicas is a minimum, not scaled by a percentage",
}
APPLICATION = {
    "route_prefix": "requests are routed by the callers of the engines",
    "host": "there is no proxy", "port": "there is no proxy", "logging_config": "each engine configures its own logs",
    "autoscaling_policy": "there is no autoscaling", "external_scaler_enabled": "there is no autoscaling",
}
DEPLOYMENT = {
    "user_config": "pass it to the engine as arguments",
    "max_ongoing_requests": "the engine handles requests",
    "max_queued_requests": "the engine handles requests",
    "graceful_shutdown_wait_loop_s": "nothing is scaled down", "graceful_shutdown_timeout_s": "nothing is scaled down",
    "health_check_period_s": "write it as period of the engine's liveness",
    "health_check_timeout_s": "write it as timeout of the engine's liveness",
    "logging_config": "each engine configures its own logs",
    "request_router_config": "requests are routed by the callers of the engines",
    "rolling_update_percentage": "an apply replaces nothing that runs",
    "max_surge_percent": "an apply replaces nothing that runs",
    "gang_scheduling_config": "a gang is a worker group with a Leader and Workers: write its members",
    "max_replicas_per_node": "maxReplicasPerModel in spec.nodes is a cap for all models of a node",
}
_NOT_RAYS_SERVER = "an option of Ray's own LLM server; vLLM's server is started here"
LLM_CONFIG = {
    "lora_config": "write adapters as vLLM's flags, and put their weights on the nodes",
    "log_engine_metrics": "each engine serves its own metrics",
    "experimental_configs": _NOT_RAYS_SERVER, "callback_config": _NOT_RAYS_SERVER, "server_cls": _NOT_RAYS_SERVER,
}


def replica_count(source: Reading) -> int:
    """Return the minimum: the fixed number of replicas, or the minimum of an autoscaled deployment."""
    written = source.amount("num_replicas")
    if isinstance(source.peek("autoscaling_config"), dict):
        if written not in (None, "auto"):
            source.note("num_replicas", "not kept: min_replicas of autoscaling_config is used", "lost")
        scaling = source.child("autoscaling_config")
        least = scaling.count("min_replicas", "replicas")
        scaling.lose_rest("there is no autoscaling: replicas is the minimum")
        return least
    if written == "auto":
        source.note("num_replicas", "auto: there is no autoscaling, so 1 is used, Serve's minimum", "lost")
        return 1
    if isinstance(written, int) and written >= 0:
        return written
    if written is not None:
        source.note("num_replicas", f"{written} is not a valid number of replicas: 1 is used", "todo")
    return 1


def env_vars(runtime_env: Reading) -> dict[str, str]:
    """Return the `env_vars`; Ray expands no `$(NAME)`, so that is escaped."""
    return {name: re.sub(r"\$(?=[$(])", "$$", text) for name, text in runtime_env.child("env_vars").pairs().items()}


def report_runtime_env(runtime_env: Reading) -> None:
    """Report everything in a runtime_env except its env_vars, which go to the engine."""
    runtime_env.lose_rest("packages and files must be on the nodes")


def read_applications(reading: Reading, draft: Draft) -> None:
    """Add a model for every deployment of every application to the draft."""
    reading.lose_each(TOP)
    for application in reading.items("applications"):
        if application.peek("import_path") in BUILDERS:
            read_llm_application(application, draft)
        else:
            _application(application, draft)
            application.lose("args", "arguments of the application's builder, which is not run")
            report_runtime_env(application.child("runtime_env"))
        application.lose_each(APPLICATION)


def _application(application: Reading, draft: Draft) -> None:
    name = application.text("name") or "default"
    import_path = application.text("import_path")
    environment = env_vars(application.child("runtime_env"))
    deployments = application.items("deployments")
    if not deployments:
        application.note(None, f"no model: {name} lists no deployments, they are in its code", "lost")
    for deployment in deployments:
        written = deployment.peek("name")
        key = name if len(deployments) == 1 else f"{name}/{written if isinstance(written, str) else 'deployment'}"
        if not is_duplicate(deployment, key, draft):
            _deployment(deployment.goes_to(key), key, import_path, environment, draft)


def _deployment(source: Reading, key: str, import_path: str | None, environment: dict[str, str], draft: Draft) -> None:
    name = source.text("name") or "deployment"
    replicas = replica_count(source)
    what = f"{name} is Python code ({import_path})" if import_path else f"{name} is Python code"
    source.note("name", f"{what}, not a command: write the command that serves the model", "todo")
    runtime_env = source.child("ray_actor_options").child("runtime_env")
    env = {**environment, **env_vars(runtime_env)}
    groups = replica_groups(source, filled({"command": [PLACEHOLDER], "env": env}))
    source.lose_each(DEPLOYMENT)
    report_runtime_env(runtime_env)
    draft.add({"key": key, "replicas": replicas, **groups}, source.place)


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
    shared, before = env_vars(runtime_env), len(draft.models)
    arguments = application.child("args")
    for config in arguments.entries("llm_configs"):
        _config(config, "", shared, draft)
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
    env = {**shared, **env_vars(runtime_env)}
    command, image = ["vllm", "serve", weights] if weights else [PLACEHOLDER], source.record.image
    if image and source.record.runtime and weights:
        source.note(None, f"podman starts {image}, the image of Ray's workers: pull it on the nodes", "todo")
        command = podman_command(image, env, command)
    engine = filled({"command": command, "args": [*args, *flags], "env": env,
                     "readiness": {"http": {"path": "/health"}}})
    show_cards(engine)
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
    each, ranks = group.child("bundle_per_worker"), tensor * stages
    written = [read_bundle(each)] * ranks if each.names else [read_bundle(bundle) for bundle in group.items("bundles")]
    # by default Ray gives every rank one card
    bundles, is_written = written or [{"GPU": Decimal(1)}] * ranks, bool(written)
    if strategy == "STRICT_PACK" or len(bundles) % stages:
        stages = 1
    _report_strategy(group, strategy, len(bundles) if is_written and stages == 1 else 0)
    size = len(bundles) // stages
    claims = [whole_cards(source, "placement_group_config", sum_of(bundles[first:first + size], times=data))
              for first in range(0, len(bundles), size)]
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


_TYPE_RESOURCE = "accelerator_type:"
_CUSTOM = "a custom resource: select nodes by label instead"
_ONE_NODE = ("PACK", "STRICT_PACK")

Bundle = dict[str, Decimal]
"""Ray's resources of one bundle: GPU, CPU, memory in bytes, and types of accelerators."""


def replica_groups(source: Reading, engine: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `workers` of a deployment, and `placement` if it may take more than one node."""
    options = source.child("ray_actor_options")
    base, selector = _actor(options), options.child("label_selector").pairs()
    bundles = [read_bundle(bundle) for bundle in source.items("placement_group_bundles")]
    selectors = [bundle.pairs() for bundle in source.items("placement_group_bundle_label_selector")]
    strategy = source.text("placement_group_strategy") or "PACK"
    if not bundles:
        if "CPU" not in base:
            source.note(None, "no num_cpus: 1 CPU is used, as in Serve", "changed")
        return {"workers": one_group([member_of({**base, "CPU": base.get("CPU", Decimal(1))}, selector, engine)])}
    if strategy in _ONE_NODE or len(bundles) == 1:
        return _one_node(source, bundles, _merged(source, [selector, *selectors]), engine, strategy)
    return _gang(source, bundles, [{**selector, **own} for own in selectors], engine, strategy)


def _one_node(source: Reading, bundles: list[Bundle], selector: dict[str, str], engine: Mapping[str, Any],
              strategy: str) -> dict[str, Any]:
    if len(bundles) > 1:
        nodes = "on one node; Ray may spread them if no node has room for all" if strategy == "PACK" else "on one node"
        source.note("placement_group_bundles", f"{len(bundles)} bundles become one member with their sum, {nodes}",
                    "lost" if strategy == "PACK" else "changed")
    return {"workers": one_group([member_of(whole_cards(source, "placement_group_bundles", sum_of(bundles)), selector,
                                            engine)])}


def _gang(source: Reading, bundles: list[Bundle], selectors: list[dict[str, str]], engine: Mapping[str, Any],
          strategy: str) -> dict[str, Any]:
    padded = [selectors[number] if number < len(selectors) else {} for number in range(len(bundles))]
    members = [member_of(whole_cards(source, "placement_group_bundles", bundle), chosen, engine)
               for bundle, chosen in zip(bundles, padded, strict=True)]
    source.note("placement_group_strategy", f"{strategy}: the first bundle is the Leader, the others are Workers; each "
                                            "starts an engine of its own", "todo")
    spread: dict[str, Any] = {} if strategy == "STRICT_SPREAD" else {"placement": {"ranksPerNode": len(bundles)}}
    return {**spread, "workers": one_group(gang_members(members))}


def gang_members(ranks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the members of a gang: the first rank is the Leader, and equal consecutive Workers are one entry."""
    workers = [{"role": "Worker", "count": len(list(alike)), **rank} for rank, alike in groupby(ranks[1:])]
    return [{"role": "Leader", **ranks[0]}, *workers]


def member_of(bundle: Bundle, selector: dict[str, str], engine: Mapping[str, Any]) -> dict[str, Any]:
    """Return a member that claims a bundle; a type of accelerator in it selects nodes."""
    types = [name.removeprefix(_TYPE_RESOURCE) for name in bundle if name.startswith(_TYPE_RESOURCE)]
    typed = {ACCELERATOR_LABEL: types[0]} if types else {}
    return filled({"resources": _resources(bundle), "nodeSelector": {**typed, **selector}, "engine": dict(engine)})


def sum_of(bundles: Sequence[Bundle], *, times: int = 1) -> Bundle:
    """Return the sum of several bundles, each counted `times` times."""
    total: Bundle = {}
    for bundle in bundles:
        for name, amount in bundle.items():
            total[name] = amount if name.startswith(_TYPE_RESOURCE) else total.get(name, Decimal(0)) + amount * times
    return total


def _resources(bundle: Bundle) -> dict[str, Any]:
    names = {"GPU": "gpus", "CPU": "cpus"}
    resources: dict[str, Any] = {ours: int(amount) if amount == amount.to_integral_value() else float(amount)
                                 for theirs, ours in names.items() if (amount := bundle.get(theirs))}
    if bundle.get("memory"):
        resources["memory"] = bytes_text(int(bundle["memory"].to_integral_value(rounding="ROUND_CEILING")))
    return resources


def _actor(options: Reading) -> Bundle:
    """Return the resources of the replica's actor, with an accelerator type as Ray's own resource for it."""
    found = {name: amount for theirs, name in (("num_gpus", "GPU"), ("num_cpus", "CPU"), ("memory", "memory"))
             if (amount := _amount(options, theirs)) is not None}
    accelerator = options.text("accelerator_type")
    if accelerator is not None:
        found[_TYPE_RESOURCE + accelerator] = Decimal(1)
    options.child("resources").lose_rest(_CUSTOM)
    options.lose("object_store_memory", "fleetctl does not manage Ray's object store")
    options.lose("fallback_strategy", "a selector has no fallback")
    return found


def read_bundle(source: Reading) -> Bundle:
    """Return the resources of one bundle; custom ones are reported."""
    known = [name for name in source.names if name in ("GPU", "CPU", "memory") or name.startswith(_TYPE_RESOURCE)]
    found = {name: amount for name in known if (amount := _amount(source, name)) is not None}
    source.lose_rest(_CUSTOM)
    return found


def _amount(source: Reading, key: str) -> Decimal | None:
    """Return an amount of a resource; None if it is missing or, reported, not a number."""
    amount = source.amount(key)
    if isinstance(amount, (int, float)):
        return Decimal(str(amount))
    if key in source:
        source.note(key, "not read: expected a number", "todo")
    return None


def whole_cards(source: Reading, key: str, bundle: Bundle) -> Bundle:
    """Return the bundle with more than one card rounded up to whole cards; a change is reported at the key."""
    gpus = bundle.get("GPU", Decimal(0))
    if gpus <= 1 or gpus == gpus.to_integral_value():
        return bundle
    whole = gpus.to_integral_value(rounding="ROUND_CEILING")
    source.note(key, f"{gpus} GPUs in one member: more than one must be whole cards, so {whole} is used", "todo")
    return {**bundle, "GPU": whole}


def _merged(source: Reading, selectors: list[dict[str, str]]) -> dict[str, str]:
    """Merge the selectors of bundles that become one member; if two conflict, the last wins."""
    found: dict[str, str] = {}
    for name, text in ((name, text) for selector in selectors for name, text in selector.items()):
        if found.get(name, text) != text:
            source.note("placement_group_bundle_label_selector", f"bundles of one member have different {name}", "todo")
        found[name] = text
    return found
