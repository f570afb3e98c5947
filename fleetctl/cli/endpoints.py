"""`fleetctl endpoints`: where each model is served now, as a table or as configuration for load balancers."""

from __future__ import annotations

import shlex
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import inf
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Annotated, Literal, NoReturn

import typer

from fleetctl.child import Child
from fleetctl.cli import flags
from fleetctl.cli.commands import command_app
from fleetctl.cli.console import say, show_report, write_document, write_result
from fleetctl.cli.process import refuse_two_readers, this_invocation
from fleetctl.documents.answers import Endpoint, Endpoints, ServedModel
from fleetctl.documents.base import is_model_key, is_served_name
from fleetctl.documents.fleet import Serving
from fleetctl.documents.inventory import (
    Inventory,
    Replica,
    address_of,
    dead_node_ids,
    host_port,
    is_live,
    is_port,
    serves,
)
from fleetctl.documents.quantity import count_of, grouped
from fleetctl.errors import FleetctlError, InventoryError, UsageError
from fleetctl.fleetfile.resolved import ResolvedFleet, ResolvedModel
from fleetctl.inventory.client import DashboardClient, ask_all
from fleetctl.inventory.fetch import Bounds, Route
from fleetctl.inventory.marks import refused_claims
from fleetctl.planner.failures import what_cools
from fleetctl.planner.live import variant_name
from fleetctl.render.endpoint_formats import FORMATS, endpoints_report, left_out
from fleetctl.workflow.cluster import fleet_of, read_from
from fleetctl.workflow.invocation import Invocation, Where
from fleetctl.workflow.output_files import refuse_to_overwrite, write_file

app = command_app(
    "fleetctl endpoints -f fleets/demo.yaml",
    "fleetctl endpoints -f fleets/demo.yaml --format litellm --out litellm.yaml",
    "fleetctl endpoints --format prometheus --out targets.json --follow",
    exit_codes="0 listed, 1 error, or something could not be read, 64 usage, 130 Ctrl-C, 143 terminated")
MODE = 0o644
ON_CHANGE_S = 60
"""Time limit of --on-change: while it runs, the file does not change."""
RETRY_S, MAX_RETRY_S = 5.0, 60.0

JSON_FORMATS = frozenset({"json", "prometheus", "vllm-router"})
EndpointFormat = Literal["table", "json", "litellm", "prometheus", "envoy", "nginx", "vllm-router"]
AT_A_TIME = 16
TIMEOUT_S = 5.0
BOUNDS = Bounds(answer_bytes=1 << 20, total_s=TIMEOUT_S, silent_s=TIMEOUT_S)
Asked = tuple[str, int, str | None]
"""Address, port, and the path of a GET; None = only connect."""


@app.command()
def endpoints(
    *,
    files: flags.OwnFiles = None,
    where: flags.Source,
    output_format: Annotated[EndpointFormat, typer.Option("--format", help=flags.FORMAT_HELP)] = "table",
    out: Annotated[Path | None, flags.option(
        "--out", "-o", metavar="FILE", dir_okay=False, help="Write to this file, replaced atomically.")] = None,
    check: Annotated[bool, typer.Option(
        "--check", help="Query each endpoint once, and leave out those that do not answer.")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Keep the --out file up to date until Ctrl-C.")] = False,
    interval: Annotated[float, flags.option(
        "--interval", metavar="DURATION", parser=flags.expiry_duration,
        help="How often --follow reads the cluster. [default: 5s]")] = 5,
    on_change: Annotated[str | None, flags.option(
        "--on-change", metavar="COMMAND", help="Run this, without a shell, after each change of the file.")] = None,
) -> int:
    """Show where each model is served now.

    Lists only replicas that are ready and not draining, and only the leader of a gang. With -f, names, paths and
    weights come from `serving` in the file. If not everything could be read, no file is touched.
    """
    out = None if str(out) == "-" else out
    if follow and (out is None or where.inventory):
        raise UsageError("--follow needs --out FILE and a live cluster")
    if on_change and out is None:
        raise UsageError("--on-change needs --out FILE")
    try:
        command = shlex.split(on_change or "")
    except ValueError as error:
        raise UsageError(f"--on-change {on_change}: {error}") from None
    if out is not None and output_format == "table":
        raise UsageError("--out needs a --format for programs", hint="json, litellm, prometheus, envoy, nginx, ...")
    refuse_two_readers(files or (), where.inventory)
    refuse_to_overwrite("--out", out, [*(files or ()), where.inventory])
    invocation = this_invocation()
    fleet = fleet_of(invocation, files)
    read = partial(_read, invocation, where, fleet, silent=set() if check else None, follow=follow)
    if output_format == "table":
        served = read()
        say("warning", *left_out(output_format, served))
        show_report(endpoints_report(served))
    elif out is None:
        write = write_result if output_format in JSON_FORMATS else write_document
        write(_text(output_format, read()))
    elif follow:
        _follow(read, KeptFile(out, output_format, command), interval)
    else:
        KeptFile(out, output_format, command).write(read())
    return 0


def _read(invocation: Invocation, where: Where, fleet: ResolvedFleet | None, *, silent: set[str] | None,
          follow: bool) -> Endpoints:
    """Return the endpoints, and report what cools and which addresses do not count.

    Raises InventoryError if the inventory is incomplete.
    `silent` = endpoints that did not answer last time; None = do not query the endpoints.
    """
    seen = read_from(invocation, where, fleet)
    if not seen.complete:
        raise InventoryError(f"not everything could be read: {'; '.join(seen.warnings)}",
                             hint="`fleetctl inventory` shows what could be read")
    if not follow:
        say("warning", *refused_claims(seen.replicas))
    if fleet and not follow:
        say("note", *(f"{cooling.name}: {cooling.why}" for cooling in what_cools(fleet, seen)))
    served = endpoints_of(seen, fleet)
    return _checked(served, fleet, silent) if silent is not None else served


def endpoints_of(seen: Inventory, fleet: ResolvedFleet | None) -> Endpoints:
    """Return the endpoints of the fleet's replicas that are ready and not draining; without a fleet, of any fleet's."""
    dead, names = dead_node_ids(seen), {node.id: node.name for node in seen.nodes}
    wanted = [replica for replica in seen.replicas
              if (replica.fleet if fleet is None else replica.fleet == fleet.name) and is_model_key(replica.model)]
    ready = grouped((replica.model, replica) for replica in wanted if serves(replica) and is_live(replica, dead))
    written = {model.key: model for model in fleet.models} if fleet else {}
    models = []
    for key in [*written, *sorted(ready.keys() - written.keys())]:
        model = written.get(key)
        serving = model.serving if model else Serving()
        served = [endpoint for replica in sorted(ready.get(key, []), key=lambda replica: replica.replica_id or 0)
                  for endpoint in _of_replica(replica, model, serving, names)]
        name = serving.name or (key if is_served_name(key) else "")
        models.append(ServedModel(key=key, name=name, path=serving.path, weight=serving.weight, endpoints=served))
    return Endpoints(observed_at=seen.observed_at, source=seen.source, fleet=fleet.name if fleet else None,
                     models=models)


def _of_replica(replica: Replica, model: ResolvedModel | None, serving: Serving, names: Mapping[str, str]
                ) -> Iterator[Endpoint]:
    variant = variant_name(model, replica)
    weight = next((one.weight for one in model.variants if one.variant == variant), None) if model else None
    for member in replica.members:
        is_serving = member.rank == 0 and (serving.groups is None or member.group in serving.groups)
        address, port = address_of(member.address), member.port
        if is_serving and address and is_port(port) and replica.replica_id is not None:
            yield Endpoint(
                replica_id=replica.replica_id, group=member.group or "", copy_index=member.copy_index,
                role=member.role, node=names.get(member.node_id or "", member.node_id or ""), address=address,
                port=port, path=serving.path, variant=variant or None, weight=weight)


def _checked(served: Endpoints, fleet: ResolvedFleet | None, silent: set[str]) -> Endpoints:
    """Leave out endpoints that do not answer, and report those not yet in `silent`."""
    # the path of each engine's readiness GET, if it has one on the serving port
    paths = {(one.key, one.variant, group.name): member.engine.readiness.http.path
             for model in (fleet.models if fleet else ()) for one in model.alternatives for group in one.workers
             for member in group.members
             if member.role != "Worker" and member.engine.readiness and member.engine.readiness.http}
    asked = [(endpoint.address, endpoint.port, paths.get((model.key, endpoint.variant or "", endpoint.group)))
             for model in served.models for endpoint in model.endpoints]
    answers, before, models = iter(answering(asked)), frozenset(silent), []
    silent.clear()
    for model in served.models:
        kept = []
        for endpoint in model.endpoints:
            if next(answers):
                kept.append(endpoint)
            else:
                path = paths.get((model.key, endpoint.variant or "", endpoint.group))
                via = via_of((endpoint.address, endpoint.port, path))
                silent.add(f"{model.key}/{endpoint.replica_id} does not answer at "
                           f"{host_port(endpoint.address, endpoint.port)}{via}; left out")
        models.append(model.model_copy(update={"endpoints": kept}))
    say("warning", *sorted(silent - before))
    return served.model_copy(update={"models": models})


def _text(output_format: EndpointFormat, served: Endpoints) -> str:
    """Return the endpoints in a format for programs; warns of models that it leaves out."""
    say("warning", *left_out(output_format, served))
    return FORMATS[output_format](served)


class KeptFile:
    """The --out file and its content; --on-change runs after each change.

    While it fails, `passed` runs it again, after pauses that grow from RETRY_S to MAX_RETRY_S: the file is right, but
    its reader may not know. `retry_in_s` = the rest of such a pause, in seconds.
    """

    def __init__(self, path: Path, output_format: EndpointFormat, on_change: Sequence[str]) -> None:
        self.path = path
        self._format = output_format
        self._on_change = on_change
        self._complaint = ""
        self._pause_s = RETRY_S
        self.retry_in_s = inf
        self.written: list[ServedModel] | None = None

    def write(self, served: Endpoints) -> None:
        """Write the file if anything changed."""
        if served.models != self.written:
            write_file(self.path, _text(self._format, served), mode=MODE)
            self.written = served.models
            total = sum(len(model.endpoints) for model in served.models)
            say("written", f"{self.path}: {count_of(total, 'endpoint')}")
            self._pause_s = RETRY_S
            self._run()

    def passed(self, seconds: float) -> None:
        """Count the time, and run the command again when its pause is over."""
        self.retry_in_s -= seconds
        if self.retry_in_s <= 0:
            self._pause_s = min(2 * self._pause_s, MAX_RETRY_S)
            self._run()

    def _run(self) -> None:
        failure = why_failed(self._on_change)
        if failure and failure != self._complaint:
            say("warning", failure)
        elif self._complaint and not failure:
            say("note", f"--on-change {shlex.join(self._on_change)} works again")
        self._complaint = failure
        self.retry_in_s = self._pause_s if failure else inf


def _follow(read: Callable[[], Endpoints], file: KeptFile, interval_s: float) -> NoReturn:
    """Keep the file up to date. It stays as it is while the cluster cannot be read or the file cannot be written."""
    is_stale = False
    while True:
        try:
            file.write(read())
            if is_stale:
                say("note", f"{file.path} is up to date again")
            is_stale = False
        except FleetctlError as error:
            if file.written is None and not isinstance(error, InventoryError):
                raise
            if not is_stale:
                say("warning", f"{file.path} stays as it is: {error.message}")
            is_stale = True
        pause_s = min(interval_s, file.retry_in_s)
        time.sleep(pause_s)
        file.passed(pause_s)


def why_failed(command: Sequence[str]) -> str:
    """Run --on-change, with its output on standard error, and return why it failed; "" = it did not."""
    if not command:
        return ""
    name = f"--on-change {shlex.join(command)}"
    try:
        with Child(command, output=2) as child:
            code = child.wait(ON_CHANGE_S).returncode
    except TimeoutExpired:
        return f"{name} was killed after {ON_CHANGE_S} s"
    except OSError as error:
        return f"{name}: {error.strerror}"
    return f"{name} ended with exit code {code}" if code else ""


def answering(endpoints: Sequence[Asked]) -> list[bool]:
    """Return for each endpoint, in order, whether it answers."""
    return ask_all(_answers, endpoints, AT_A_TIME)


def via_of(endpoint: Asked) -> str:
    """Return the mention of the proxy through which an endpoint is asked, if any."""
    address, port, path = endpoint
    return Route(f"http://{host_port(address, port)}").via if path is not None else ""


def _answers(endpoint: Asked) -> bool:
    address, port, path = endpoint
    try:
        if path is None:
            socket.create_connection((address, port), TIMEOUT_S).close()
            return True
        with DashboardClient(f"http://{host_port(address, port)}", timeout_s=TIMEOUT_S, bounds=BOUNDS) as client:
            return client.get(path).status_code == 200
    except (OSError, InventoryError):
        return False
