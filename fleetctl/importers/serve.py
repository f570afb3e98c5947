"""Imports Ray Serve configs (`applications:`): the replicas of each deployment, and the resources of each replica.

A Serve replica is Python code in an actor, without a command line, so the command is a placeholder. Only for Ray's own
LLM builders is the engine known; see `serve_llm.py`.
"""

from __future__ import annotations

from fleetctl.importers.draft import PLACEHOLDER, Draft, filled
from fleetctl.importers.reading import Reading, is_duplicate
from fleetctl.importers.serve_fields import APPLICATION, DEPLOYMENT, TOP, replica_count, report_runtime_env
from fleetctl.importers.serve_llm import BUILDERS, read_llm_application
from fleetctl.importers.serve_placement import replica_groups


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
    environment = application.child("runtime_env").child("env_vars").pairs()
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
    env = {**environment, **runtime_env.child("env_vars").pairs()}
    groups = replica_groups(source, filled({"command": [PLACEHOLDER], "env": env}))
    source.lose_each(DEPLOYMENT)
    report_runtime_env(runtime_env)
    draft.add({"key": key, "replicas": replicas, **groups}, source.place)
