"""What of a Ray Serve config has no home in a fleet file, with the reason that is given for each."""

from __future__ import annotations

TOP = {
    "proxy_location": "there is no proxy: engines are reached on their own ports",
    "http_options": "there is no proxy: engines are reached on their own ports",
    "grpc_options": "there is no proxy: engines are reached on their own ports",
    "logging_config": "logs are the engine's own",
    "target_capacity": "replicas are a floor, not scaled by a percentage",
}
APPLICATION = {
    "route_prefix": "requests are routed by whoever calls the engines",
    "host": "there is no proxy", "port": "there is no proxy", "logging_config": "logs are the engine's own",
    "autoscaling_policy": "there is no autoscaling", "external_scaler_enabled": "there is no autoscaling",
}
DEPLOYMENT = {
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
_NOT_RAYS_SERVER = "an option of Ray's own LLM server: here vLLM's is started"
LLM_CONFIG = {
    "lora_config": "adapters are vLLM's business: give them as its flags, with their weights on the nodes",
    "log_engine_metrics": "metrics are the engine's own",
    "experimental_configs": _NOT_RAYS_SERVER, "callback_config": _NOT_RAYS_SERVER, "server_cls": _NOT_RAYS_SERVER,
}
