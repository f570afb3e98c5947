"""`fleetctl demo up|down|run`: a local Ray of four nodes with simulated GPUs to try fleetctl on, and a guided tour."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

import typer

from fleetctl.cli import signals
from fleetctl.cli.commands import command_app, epilog
from fleetctl.cli.console import write_document
from fleetctl.cli.entry import callers_environment
from fleetctl.demo.cluster import DEMO_NODES
from fleetctl.demo.home import ClusterState, DemoHome, without_other_clusters
from fleetctl.demo.lifecycle import client_environment, left_in, running, start_cluster, stop_cluster
from fleetctl.demo.tour import Tour, demo_fleet, stops_after_asking, stops_before_asking
from fleetctl.errors import FleetctlError

app = command_app(
    'eval "$(fleetctl demo up)"',
    "fleetctl plan -f fleets/demo.yaml",
    'eval "$(fleetctl demo down)"',
    exit_codes="0 done, 1 error, 64 usage", help="A local Ray with simulated GPUs, on this machine only.")


@app.command()
def up() -> int:
    """Start the demo cluster and print its address.

    Standard output is for the shell to evaluate: `eval "$(fleetctl demo up)"`. A demo cluster that is already running
    stays as it is; no other Ray on the machine is touched.
    """
    home = DemoHome.from_environment(os.environ)
    state = _start(home)
    lines = [f"export {name}={shlex.quote(value)}" for name, value in client_environment(home, state).items()]
    lines += ["unset RAY_AUTH_TOKEN"] if "RAY_AUTH_TOKEN" in os.environ else []
    write_document("\n".join(lines) + "\n")
    return 0


@app.command()
def down() -> int:
    """End the demo cluster and everything on it.

    Does nothing if there is none; also cleans up after a cluster that was killed. Standard output is for the shell to
    evaluate: `eval "$(fleetctl demo down)"` unsets the variables of `demo up`.
    """
    home = DemoHome.from_environment(os.environ)
    ended, left = stop_cluster(home), left_in(os.environ, home)
    _note(f"the demo cluster is down ({ended} processes ended)" if ended else "no demo cluster is up")
    if left:
        if sys.stdout.isatty():
            _note("this shell still has the variables of the demo; to unset them:")
        write_document(f"unset {' '.join(left)}\n")
    return 0


@app.command(epilog=epilog("fleetctl demo run", exit_codes="0 shown, 1 error, 64 usage"))
def run() -> int:
    """Take a guided tour of a demo cluster.

    In about two minutes it starts the cluster, plans, applies, queries an engine, plans again and takes it all down.
    """
    home = DemoHome.from_environment(os.environ)
    if running(home) is not None:
        raise FleetctlError("a demo cluster is already up; the tour starts its own",
                            hint="`fleetctl demo down` takes it down")
    _tour(home)
    return 0


def _tour(home: DemoHome) -> None:
    fleet = demo_fleet(Path.cwd())
    typer.echo("== Start\nA Ray of four nodes on this machine, with simulated GPUs.\n")
    try:
        state = _start(home)
        env = {**without_other_clusters(os.environ), **client_environment(home, state)}
        tour = Tour([sys.executable, "-m", "fleetctl"], env, typer.echo)
        for stop in stops_before_asking(fleet):
            tour.visit(stop)
        tour.ask_engine()
        for stop in stops_after_asking(fleet, Path(fleet).read_text(encoding="utf-8")):
            tour.visit(stop)
    finally:
        signals.ignore()  # a second Ctrl-C must not leave a cluster running
        typer.echo("\n== Down")
        typer.echo(f"{stop_cluster(home)} processes ended; nothing is left.")
    script, activate = Path(sys.prefix) / "bin" / "activate", ""
    if not shutil.which("fleetctl") and script.is_file():  # so that it is on the PATH
        near = script.relative_to(Path.cwd()) if script.is_relative_to(Path.cwd()) else script
        activate = f". {shlex.quote(str(near))}; "
    typer.echo(f"\nTo continue: {activate}eval \"$(fleetctl demo up)\"")
    typer.echo("When you are done: eval \"$(fleetctl demo down)\"")


def _start(home: DemoHome) -> ClusterState:
    described = {node.name: node.describe() for node in DEMO_NODES}
    if running(home) is None:
        _note("starting a local Ray; a node takes a few seconds")
    state, fresh = start_cluster(home, callers_environment(), sys.executable,
                                 lambda name: _note(f"  {described[name]}"))
    _note(f"the demo cluster is {'' if fresh else 'already '}up at {state.address}")
    return state


def _note(text: str) -> None:
    typer.echo(text, err=True)
