"""Ray Serve configs (`applications:`): how many replicas of a deployment there are, and what each of them holds.

A Serve replica is Python inside an actor: there is no command line, so a placeholder stands where one is needed. Only
for the LLM builder of Ray itself the engine is known by name; see `serve_llm.py`.
"""

from __future__ import annotations

from fleetctl.importers.draft import PLACEHOLDER, Draft
from fleetctl.importers.reading import Reading, is_taken
from fleetctl.importers.serve_llm import is_llm_builder, read_llm_application, report_runtime_env
from fleetctl.importers.serve_placement import replica_groups
from fleetctl.importers.serve_replicas import replica_count

_LOST_TOP = {
    "proxy_location": "there is no proxy: engines are reached on their own ports",
    "http_options": "there is no proxy: engines are reached on their own ports",
    "grpc_options": "there is no proxy: engines are reached on their own ports",
    "logging_config": "logs are the engine's own",
    "target_capacity": "replicas are a floor, not scaled by a percentage",
}
_LOST_APPLICATION = {
    "route_prefix": "requests are routed by whoever calls the engines",
    "args": "arguments of the application's builder",
    "host": "there is no proxy", "port": "there is no proxy", "logging_config": "logs are the engine's own",
    "autoscaling_policy": "there is no autoscaling", "external_scaler_enabled": "there is no autoscaling",
}
_LOST_DEPLOYMENT = {
    "user_config": "the engine's business: give it as arguments",
    "max_ongoing_requests": "requests are the engine's business",
    "max_queued_requests": "requests are the engine's business",
    "graceful_shutdown_wait_loop_s": "nothing is scaled down", "graceful_shutdown_timeout_s": "nothing is scaled down",
    "health_check_period_s": "write it as period of the engine's liveness",
    "health_check_timeout_s": "write it as timeout of the engine's liveness",
    "logging_config": "logs are the engine's own",
    "request_router_config": "requests are routed by whoever calls the engines",
    "rolling_update_percentage": "nothing that runs is replaced", "max_surge_percent": "nothing that runs is replaced",
    "gang_scheduling_config": "a gang is a worker group with a Leader and Workers: write its members",
    "max_replicas_per_node": "a cap holds for all models of a node: spec.nodes, maxReplicasPerModel",
}


def read_applications(reading: Reading, draft: Draft) -> None:
    """Add a model for every deployment of every application to the draft."""
    for key, words in _LOST_TOP.items():
        reading.lose(key, words)
    for application in reading.items("applications"):
        if is_llm_builder(application):
            read_llm_application(application, draft)
        else:
            _application(application, draft)
            report_runtime_env(application.child("runtime_env"))
        for key, words in _LOST_APPLICATION.items():
            application.lose(key, words)


def _application(application: Reading, draft: Draft) -> None:
    name = application.text("name") or "default"
    import_path = application.text("import_path")
    environment = application.child("runtime_env").pairs("env_vars")
    deployments = application.items("deployments")
    if not deployments:
        application.note(None, f"the deployments of {name} stand in its code, and none is listed: no model", "lost")
    for deployment in deployments:
        written = deployment.peek("name")
        key = name if len(deployments) == 1 else f"{name}/{written if isinstance(written, str) else 'deployment'}"
        if not is_taken(deployment, key, draft):
            _deployment(deployment.goes_to(key), key, import_path, environment, draft)


def _deployment(source: Reading, key: str, import_path: str | None, environment: dict[str, str], draft: Draft) -> None:
    name = source.text("name") or "deployment"
    replicas = replica_count(source)
    what = f"{name} is Python ({import_path})" if import_path else f"{name} is Python"
    source.note("name", f"{what}, not a command: write the command that serves the model", "todo")
    runtime_env = source.child("ray_actor_options").child("runtime_env")
    env = {**environment, **runtime_env.pairs("env_vars")}
    groups = replica_groups(source, {"command": [PLACEHOLDER], **({"env": env} if env else {})})
    for lost, words in _LOST_DEPLOYMENT.items():
        source.lose(lost, words)
    report_runtime_env(runtime_env)
    draft.add({"key": key, "replicas": replicas, **groups}, source.place)
