"""`fleetctl demo up|down|run`: a local Ray of four nodes with pretended GPUs, to play on and to be shown around."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from fleetctl.cli.help import epilog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.demo.home import ClusterState, DemoHome

EPILOG = epilog(
    examples=[
        'eval "$(fleetctl demo up)"',
        "fleetctl plan -f fleets/demo.yaml",
        "fleetctl demo down",
    ],
    exit_codes="0 done, 1 error, 64 usage",
)


def register(app: typer.Typer) -> None:
    """Add the command group."""
    group = typer.Typer(
        help="A local Ray with pretended GPUs, on this machine alone.",
        epilog=EPILOG,
        rich_markup_mode=None,
    )
    group.command("up", epilog=EPILOG)(up)
    group.command("down", epilog=EPILOG)(down)
    group.command("run", epilog=epilog(examples=["fleetctl demo run"], exit_codes="0 shown, 1 error, 64 usage"))(run)
    app.add_typer(group, name="demo")


def up() -> int:
    """Start the demo cluster and say where it is.

    What it prints on standard output is for the shell: `eval "$(fleetctl demo up)"`. A cluster that is up already stays
    as it is, and no other Ray on the machine is touched.
    """
    import os

    from fleetctl.cli.console import write_document
    from fleetctl.demo.home import DemoHome
    from fleetctl.demo.lifecycle import client_environment

    home = DemoHome.from_environment(os.environ)
    state = _start(home)
    write_document(_exports(client_environment(home, state), drop_token="RAY_AUTH_TOKEN" in os.environ))
    return 0


def down() -> int:
    """End the demo cluster and all it runs.

    Fine when there is none; cleans up after one that was killed.
    """
    import os

    from fleetctl.demo.home import DemoHome
    from fleetctl.demo.lifecycle import stop_cluster

    ended = stop_cluster(DemoHome.from_environment(os.environ))
    _tell_aside(f"the demo cluster is down ({ended} processes ended)" if ended else "no demo cluster is up")
    return 0


def run() -> int:
    """Be shown around, from up to down.

    Plans, applies, asks an engine, plans again, shows the status and takes it all down; about two minutes.
    """
    import os

    from fleetctl.demo.home import DemoHome
    from fleetctl.demo.lifecycle import running
    from fleetctl.errors import FleetctlError

    home = DemoHome.from_environment(os.environ)
    if running(home) is not None:
        raise FleetctlError("a demo cluster is up already; the tour starts with a fresh one",
                            hint="`fleetctl demo down` takes it down")
    _show_around(home)
    return 0


def _show_around(home: DemoHome) -> None:
    import os
    import sys
    from pathlib import Path

    from fleetctl.demo.lifecycle import client_environment, stop_cluster
    from fleetctl.demo.tour import Tour, demo_fleet, stops_after_asking, stops_before_asking

    fleet = demo_fleet(Path.cwd())
    _tell("== Start\nA Ray of four nodes on this machine; Ray believes what it is told about GPUs.\n")
    try:
        _end_with_terminal()
        state = _start(home)
        env = {**_without_other_clusters(os.environ), **client_environment(home, state)}
        tour = Tour([sys.executable, "-m", "fleetctl"], env, _tell)
        for stop in stops_before_asking(fleet):
            tour.visit(stop)
        tour.ask_engine()
        for stop in stops_after_asking(fleet, Path(fleet).read_text(encoding="utf-8")):
            tour.visit(stop)
    finally:
        _ignore_interrupts()
        _tell("\n== Down")
        _tell(f"{stop_cluster(home)} processes ended; nothing is left.")
    _tell("\nTo play on: eval \"$(fleetctl demo up)\", and `fleetctl demo down` when you are done.")


def _start(home: DemoHome) -> ClusterState:
    import os
    import sys

    from fleetctl.demo.lifecycle import running, start_cluster
    from fleetctl.demo.nodes import DEMO_NODES

    described = {node.name: node.describe() for node in DEMO_NODES}
    if running(home) is None:
        _tell_aside("starting a local Ray; a node takes a few seconds")
    state, fresh = start_cluster(home, os.environ, sys.executable, lambda name: _tell_aside(f"  {described[name]}"))
    _tell_aside(f"the demo cluster is up at {state.address}" if fresh else f"it is up already, at {state.address}")
    return state


def _without_other_clusters(environ: Mapping[str, str]) -> dict[str, str]:
    """Leave out what would lead the tour's commands elsewhere."""
    return {name: value for name, value in environ.items() if not name.startswith(("RAY_", "FLEETCTL_"))}


def _exports(variables: dict[str, str], *, drop_token: bool) -> str:
    import shlex

    lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    return "\n".join([*lines, *(["unset RAY_AUTH_TOKEN"] if drop_token else [])]) + "\n"


def _end_with_terminal() -> None:
    """Treat a closed terminal as a request to end, so that the cluster goes too."""
    import signal

    def end(_signum: int, _frame: object) -> None:
        raise SystemExit(128 + signal.SIGHUP)

    signal.signal(signal.SIGHUP, end)


def _ignore_interrupts() -> None:
    """Let the cleanup finish: a second Ctrl-C must not leave a cluster behind."""
    import signal

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def _tell(text: str) -> None:
    typer.echo(text)


def _tell_aside(text: str) -> None:
    typer.echo(text, err=True)
