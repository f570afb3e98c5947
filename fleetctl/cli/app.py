"""The command tree: the commands in the order of the help, and the global options.

A command is the `app` of its module, which is imported when the command runs.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

import typer
from typer._completion_classes import completion_init  # called by typer itself with `add_completion`
from typer.main import get_command

from fleetctl.cli import console
from fleetctl.cli.commands import ContextOption, Listed, command_app, epilog, lazy_group
from fleetctl.cli.console import ColorChoice
from fleetctl.cli.process import remember_command
from fleetctl.version import VERSION_LINE

SECTIONS = {
    "The fleet file": {
        "init": Listed("import_fleet", "Write a first fleet file for the nodes of a cluster."),
        "validate": Listed("fleet_files", "Check fleet files; print every problem with file, line and column."),
        "fmt": Listed("fleet_files", "Format fleet files: key order, indentation, blank lines."),
        "explain": Listed("explain", "Describe a field of the fleet file, or a code."),
        "render": Listed("fleet_files", "Print a fleet as one document, with everything it extends."),
        "import": Listed("import_fleet", "Write a fleet file from what already exists."),
        "diff": Listed("fleet_files", "Show what changed in meaning, and how it affects running replicas."),
    },
    "What would happen": {
        "plan": Listed("plan", "Show what would run where, what does not fit, and why."),
        "show": Listed("show", "Show a saved plan, and whether it can still be applied."),
        "capacity": Listed("questions", "Show how many more replicas would fit, and where."),
        "what-if": Listed("questions", "Show the plan for a cluster that has lost or gained nodes."),
        "map": Listed("questions", "Draw which replica holds which card."),
        "mcp": Listed("mcp.command", "Answer an agent's questions about a fleet; read-only."),
    },
    "Apply": {
        "apply": Listed("apply", "Start missing replicas, as many as fit, and wait until they are ready."),
        "watch": Listed("watch", "Apply a git branch continuously."),
        "stop": Listed("stop", "Stop a running apply; the replicas it created stay."),
        "pause": Listed("nodes", "Start nothing more for a model or a fleet; running replicas stay."),
        "resume": Listed("nodes", "Start replicas of a model or a fleet again."),
        "ci": Listed("ci", "Validate, review or apply a change in a CI job; check for drift."),
    },
    "What is running": {
        "status": Listed("status", "Show every replica with its state, nodes and address."),
        "logs": Listed("logs", "Show the engine logs of a model or a replica, in time order."),
        "endpoints": Listed("endpoints", "Show where each model is served now."),
        "inventory": Listed("inventory", "Show the nodes, what holds their cards, and all replicas."),
        "history": Listed("history", "Show what was applied, restarted or evicted, and how it ended."),
        "doctor": Listed("doctor", "Find problems in client, cluster and fleet, and how to fix them."),
    },
    "A single model or replica": {
        "deploy": Listed("scale", "Start the first replicas of a model in the fleet file."),
        "scale": Listed("scale", "Start replicas of a model until N run; it never removes any."),
        "replace": Listed("replace", "Update a model to the file's spec, one replica after another."),
        "rollout": Listed("rollout", "Replace all that is outdated, a few models at a time."),
        "restart": Listed("explicit", "Restart engines in place, one replica after another."),
        "evict": Listed("explicit", "End the named replicas, and no others."),
    },
    "Nodes": {
        "cordon": Listed("nodes", "Keep new replicas off a node; running replicas stay."),
        "uncordon": Listed("nodes", "Allow new replicas on a node again."),
        "drain": Listed("drain", "Replace the replicas of a node elsewhere, then list or end them."),
    },
    "fleetctl itself": {
        "context": Listed("context", "Name clusters, and choose the one that commands use."),
        "demo": Listed("demo", "A local Ray with simulated GPUs, on this machine only."),
    },
    "Not needed at first": {
        "propose": Listed("propose", "Propose a change to the fleet file, for review."),
        "schema": Listed("explain", "Print the JSON Schema of a document."),
        "slots": Listed("nodes", "Set how many replicas of one model a node may hold."),
        "release-nodes": Listed("nodes", "Withdraw a fleet's node requests from Ray's autoscaler."),
        "model": Listed("model", "Describe a model, so that plans know what it takes on a card."),
        "weights": Listed("weights", "Index a model's files so that nodes can fetch and verify them."),
        "prefetch": Listed("disks", "Fetch a model's weights onto nodes before a replica needs them."),
        "prune": Listed("disks", "Remove weights that no fleet file names, and compile caches, from nodes' disks."),
        "completion": Listed("completion", "Print the completion script for a shell."),
    },
}
"""The commands by purpose, in the order of the help."""
COMMANDS = {name: listed for section in SECTIONS.values() for name, listed in section.items()}

TAGLINE = """GitOps for model replicas on a Ray/GPU fleet.

Shows what would run where, what does not fit and why; then runs it. Never takes capacity away."""

EPILOG = epilog(
    "fleetctl validate -f fleets/",
    "fleetctl plan -f fleets/prod.yaml --address http://ray-head:8265",
    "fleetctl apply -f fleets/prod.yaml",
    exit_codes="0 success, 1 error, 2 changes (plan), 3 partial, 4 refused by policy, 5 locked, 6 stale plan, 7 "
               "stopped waiting, 64 usage, 130 Ctrl-C, 143 terminated")


@cache
def build_app() -> Any:  # noqa: ANN401  Click's Command, which typer vendors
    """Return the application, built once per process."""
    completion_init()
    app = command_app(help=TAGLINE)
    app.callback(
        cls=lazy_group(COMMANDS, SECTIONS), epilog=EPILOG, invoke_without_command=True,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )(_global_options)
    return get_command(app)


def _global_options(
    context: typer.Context,
    color: Annotated[ColorChoice, typer.Option(
        "--color", help="When to use color. [env var: NO_COLOR, FORCE_COLOR]")] = "auto",
    cluster: ContextOption = None,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    console.choose_color(color)
    remember_command(context.invoked_subcommand, cluster)
    if version:
        typer.echo(VERSION_LINE)
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(64)
