"""Fields shared by all deployments of a Ray Serve config: replicas, runtime_env, and those without a counterpart."""

from __future__ import annotations

from fleetctl.importers.reading import Reading

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


def report_runtime_env(runtime_env: Reading) -> None:
    """Report everything in a runtime_env except its env_vars, which go to the engine."""
    runtime_env.lose_rest("packages and files must be on the nodes")
