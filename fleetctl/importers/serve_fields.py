"""What all deployments of a Ray Serve config share: replicas, runtime_env, and what has no home in a fleet file."""

from __future__ import annotations

from fleetctl.importers.reading import Reading

TOP = {
    "proxy_location": "there is no proxy: engines are reached on their own ports",
    "http_options": "there is no proxy: engines are reached on their own ports",
    "grpc_options": "there is no proxy: engines are reached on their own ports",
    "logging_config": "logs are the engine's own",
    "target_capacity": "replicas are a floor, not scaled by a percentage",
}
APPLICATION = {
    "route_prefix": "the callers of the engines route requests",
    "host": "there is no proxy", "port": "there is no proxy", "logging_config": "logs are the engine's own",
    "autoscaling_policy": "there is no autoscaling", "external_scaler_enabled": "there is no autoscaling",
}
DEPLOYMENT = {
    "user_config": "the engine's concern: give it as arguments",
    "max_ongoing_requests": "requests are the engine's concern",
    "max_queued_requests": "requests are the engine's concern",
    "graceful_shutdown_wait_loop_s": "nothing is scaled down", "graceful_shutdown_timeout_s": "nothing is scaled down",
    "health_check_period_s": "write it as period of the engine's liveness",
    "health_check_timeout_s": "write it as timeout of the engine's liveness",
    "logging_config": "logs are the engine's own",
    "request_router_config": "the callers of the engines route requests",
    "rolling_update_percentage": "nothing that runs is replaced", "max_surge_percent": "nothing that runs is replaced",
    "gang_scheduling_config": "a gang is a worker group with a Leader and Workers: write its members",
    "max_replicas_per_node": "a cap holds for all models of a node: spec.nodes, maxReplicasPerModel",
}
_NOT_RAYS_SERVER = "an option of Ray's own LLM server: here vLLM's is started"
LLM_CONFIG = {
    "lora_config": "adapters are vLLM's concern: give them as its flags, with their weights on the nodes",
    "log_engine_metrics": "metrics are the engine's own",
    "experimental_configs": _NOT_RAYS_SERVER, "callback_config": _NOT_RAYS_SERVER, "server_cls": _NOT_RAYS_SERVER,
}


def replica_count(source: Reading) -> int:
    """Return the floor: the fixed number of replicas, or the least an autoscaled deployment keeps."""
    written = source.amount("num_replicas")
    if isinstance(source.peek("autoscaling_config"), dict):
        if written not in (None, "auto"):
            source.note("num_replicas", "not kept: the replicas are those of autoscaling_config", "lost")
        scaling = source.child("autoscaling_config")
        least = scaling.count("min_replicas", "replicas")
        scaling.lose_rest("there is no autoscaling: replicas is the least number, and it is kept")
        return least
    if written == "auto":
        source.note("num_replicas", "auto: there is no autoscaling, and the least Serve keeps is 1", "lost")
        return 1
    if isinstance(written, int) and written >= 0:
        return written
    if written is not None:
        source.note("num_replicas", f"{written} is not a number of replicas: 1 is written", "todo")
    return 1


def report_runtime_env(runtime_env: Reading) -> None:
    """Report what a runtime_env brings beside its env_vars, which go to the engine."""
    runtime_env.lose_rest("packages and files must be on the nodes")
