"""`fleetctl logs MODEL|MODEL/ID`: the output of engines while they start, while they run, and after they ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Annotated

import typer

from fleetctl.cli import flags
from fleetctl.cli.commands import MadeBy, command_app
from fleetctl.cli.completion import complete_replicas
from fleetctl.cli.console import end_with_reader, say, write_output_of_others
from fleetctl.cli.process import this_invocation
from fleetctl.cli.replica_argument import ReplicaId, nearest_hint, parse_replica, running_replicas, with_keys
from fleetctl.documents.base import as_datetime
from fleetctl.documents.inventory import Inventory, Replica
from fleetctl.documents.quantity import count_of, first_few
from fleetctl.errors import FleetctlError, InventoryError, UsageError
from fleetctl.inventory.client import DashboardClient, ask_all
from fleetctl.inventory.dashboard import Live
from fleetctl.inventory.engine_log import HELD_BYTES, EngineLog, Search, logs_of, search_logs
from fleetctl.inventory.log_follow import MOST_LINES, Entry, Follower, Line, Listing, LogEnd, merged, read_end
from fleetctl.render.visible import visible
from fleetctl.workflow.cluster import absent, cluster_of, fleet_of, read
from fleetctl.workflow.dashboard import live_source

app = command_app(
    "fleetctl logs openai-community/gpt2 --since 10m",
    "fleetctl logs openai-community/gpt2/0 --follow",
    "fleetctl logs Qwen/Qwen3-Coder-480B/0 --rank 1 --tail 50",
    exit_codes="0 shown, 1 error, something could not be read, or no such log, 64 usage, 130 Ctrl-C, 143 "
               "terminated")
LISTED, TAIL, SINCE_TAIL = 10, 1_000, 100_000
ENDED_SHOWN = 20
"""How many ended replicas of a model are shown next to the running ones."""

ABSENT_LISTINGS = 2
"""A replica that restarts may be missing from one listing."""


@dataclass(frozen=True, slots=True)
class LineFlags:
    """Which lines are shown. Seconds."""

    since: Annotated[float | None, flags.option(
        "--since", metavar="DURATION", parser=flags.duration,
        help="Show only lines newer than this, such as 10m.")] = None
    tail: Annotated[int | None, flags.option(
        "--tail", metavar="N", min=0, max=MOST_LINES,
        help="Show only the last N lines. [default: 1000; with --since: 100000]")] = None
    timestamps: Annotated[bool, typer.Option("--timestamps", help="Show the time of each line.")] = False

    @property
    def number(self) -> int:
        """How many lines are shown at most."""
        return (TAIL if self.since is None else SINCE_TAIL) if self.tail is None else self.tail

    def begin(self, now: str) -> str:
        """Return the time of the first line to show, in the format of the logs; empty = any."""
        if self.since is None:
            return ""
        return f"{as_datetime(now) - timedelta(seconds=self.since):%Y-%m-%dT%H:%M:%S.000Z}"


@dataclass(frozen=True, slots=True)
class MemberFlags:
    """Whose logs are shown; None = of all members."""

    group: Annotated[str | None, flags.option("--group", metavar="NAME", help="Show only this worker group.")] = None
    copy: Annotated[int | None, flags.option("--copy", metavar="N", help="Show only this copy of a group.")] = None
    rank: Annotated[int | None, flags.option("--rank", metavar="N", help="Show only this rank of a gang.")] = None

    def of(self, logs: Sequence[EngineLog]) -> list[EngineLog]:
        """Return the logs of these members."""
        return [log for log in logs if self.group in (None, log.group) and self.copy in (None, log.copy_index)
                and self.rank in (None, log.rank)]


@app.command()
def logs(
    *,
    names: Annotated[list[str], typer.Argument(
        metavar="MODEL|MODEL/ID", show_default=False, autocompletion=complete_replicas,
        help="A model, for all its replicas; or one replica, as `fleetctl status` names it.")],
    replica_id: ReplicaId = None,
    follow: Annotated[bool, typer.Option(
        "--follow", "-f", help="Keep printing new lines, also of replicas that start later.")] = False,
    lines: Annotated[LineFlags, MadeBy(LineFlags)],
    files: Annotated[list[str] | None, flags.option(
        "--file", metavar="PATH", help=flags.CLUSTER_FILES_HELP)] = None,
    where: flags.Cluster,
    members: Annotated[MemberFlags, MadeBy(MemberFlags)],
) -> int:
    """Show the engine logs of a model or a replica, in time order.

    If there are several, each line begins with its replica or rank, and marks replicas that have ended. The log of a
    replica that failed to start or was evicted stays on its node for as long as the cluster's Ray session lives.
    """
    if len(names) > 1:
        raise UsageError(f"logs takes one MODEL or MODEL/ID; {names[1]} is one too many", hint=(
            "-f means --follow here; --file names a fleet file" if any(map(flags.names_fleet, names)) else None))
    invocation = this_invocation()
    cluster = cluster_of(fleet_of(invocation, files))
    with live_source(invocation, where, cluster) as source:
        seen = read(invocation, source)
        begin = lines.begin(seen.observed_at)
        [name] = with_keys(seen, names)
        running = running_replicas(seen, name, replica_id)
        model, number, search = _find(source, seen, running, name, replica_id)
        if search.logs and not search.failed and not members.of(search.logs):
            raise absent(seen, f"{name} has no member of that --group, --copy and --rank",
                         hint="it has " + ", ".join(_listed(sorted({log.label for log in search.logs}))))
        ends = _read(source, members.of(search.logs), lines.number, begin)
        failed = [*(f"node {failure}" for failure in search.failed),
                  *(f"{end.log.replica_id} {end.log.label}: {failure}" for end in ends for failure in end.failed)]
        if not any(end.exists for end in ends) and not (follow and running and ends):
            raise _missing(seen, name if replica_id is None else f"{name}/{replica_id}", failed)
        page = LogPage(model, number, timestamps=lines.timestamps)
        page.record([end.log for end in ends if end.exists])
        page.ended = {end.log.replica_id for end in ends} - {
            replica.replica_id for replica in running} if running else set()
        if follow and running:  # the last line of a running engine may be incomplete
            ends = [replace(end, lines=end.lines[:-1]) if end.unfinished else end for end in ends]
        if begin and any(end.lines and not end.lines[-1].time for end in ends):
            say("note", "a replica was started by an earlier fleetctl, and its log has no times: all of it is shown")
        page.show_earlier(*merged(ends, lines.number, begin))
        say("warning", *(f"not everything could be read: {failure}" for failure in _listed(failed)))
        if follow:
            ends = [end for end in ends if end.log.replica_id not in page.ended]

            def listed() -> Listing:
                now = source.read()
                return Listing(members.of(logs_of(now, source.namespace, model, number)), now.complete)

            follow_logs(source.client, page, ends, bool(running), listed)
    return 1 if failed else 0


def _find(
    source: Live, seen: Inventory, running: Sequence[Replica], name: str, replica_id: int | None
) -> tuple[str, int | None, Search]:
    """Return the model, the replica (None = all) and the logs: of running replicas, otherwise of ended ones."""
    if running:
        model = running[0].model
        number = replica_id if model == name else running[0].replica_id
        logs, left = logs_of(seen, source.namespace, model, number), Search(())
        if number is None:
            left = _left_beside(source, seen, model, {log.replica_id for log in logs})
        return model, number, Search((*logs, *left.logs), left.failed)
    readings: list[tuple[str, int | None]] = [(name, replica_id)]
    if replica_id is None:
        with suppress(UsageError):
            readings.insert(0, parse_replica(name))
    searches = [(*reading, search_logs(source.client, seen, source.namespace, *reading)) for reading in readings]
    return next((search for search in searches if search[2].logs), searches[0])


def _left_beside(source: Live, seen: Inventory, model: str, running: Set[int]) -> Search:
    """Return the logs of ended replicas of a model, from the nodes where it runs or has failed."""
    node_ids = {member.node_id for replica in seen.replicas if replica.model == model
                for member in replica.members if member.node_id}
    node_ids |= {node_id for failure in seen.failures if failure.model == model for node_id in failure.node_ids}
    search = search_logs(source.client, seen, source.namespace, model, None, node_ids)
    ended = sorted({log.replica_id for log in search.logs} - running)
    if more := ended[:-ENDED_SHOWN]:
        say("note", f"{count_of(len(more), 'older ended replica')} not shown; to see one: {model}/{more[-1]}")
    return replace(search, logs=tuple(log for log in search.logs if log.replica_id in ended[-ENDED_SHOWN:]))


def _read(source: Live, logs: Sequence[EngineLog], tail: int, begin: str) -> list[LogEnd]:
    """Read the ends of the logs, each file once: raylets that share a host serve the same file."""
    def enough(lines: Sequence[Line]) -> bool:
        return len(lines) > tail or bool(begin and lines and "" < lines[0].time < begin)

    read_one = partial(read_end, source.client, lines=min(tail, TAIL) + 1, enough=enough,
                       last_bytes=HELD_BYTES // max(len(logs), 1))
    files: dict[object, LogEnd] = {}
    for end in ask_all(read_one, logs):
        files.setdefault((end.log.file_name, end.lines, end.failed), end)
    return list(files.values())


def _missing(seen: Inventory, name: str, failed: Sequence[str]) -> FleetctlError:
    if failed:
        return InventoryError(f"the log of {name} cannot be read: {'; '.join(_listed(failed))}",
                              hint="the dashboard reads logs through an agent on each node; check its own log there")
    return absent(seen, f"there is no log of {name}", nearest_hint(seen, name))


def _listed(failed: Sequence[str]) -> list[str]:
    """Return the first failures: a large cluster may fail in the same way on each node."""
    return first_few(failed, LISTED)


class LogPage:
    """Writes log lines of a model, or of its one replica `number`."""

    def __init__(self, model: str, number: int | None, *, timestamps: bool) -> None:
        self.number = number
        self._model = model
        self._timestamps = timestamps
        self._members: dict[int, set[str]] = {}
        self._variants: dict[int, str] = {}
        self.ended: set[int] = set()
        """Ended replicas, shown next to running ones."""

    def record(self, logs: Iterable[EngineLog]) -> None:
        """Record the members and the variant of each replica: the lines of a single member need no rank."""
        for log in logs:
            self._members.setdefault(log.replica_id, set()).add(log.label)
            self._variants[log.replica_id] = log.variant

    def show(self, entries: Sequence[Entry]) -> None:
        """Write lines, each with its replica and rank if there are several."""
        if entries:
            write_output_of_others(b"".join(
                self._prefix(log) + (line.time.encode() + b" " if self._timestamps and line.time else b"")
                + line.text + b"\n" for log, line in entries))

    def show_earlier(self, entries: Sequence[Entry], left_out: int | None) -> None:
        """Write existing lines; `left_out` = how many earlier lines are not shown, None = unknown."""
        if left_out != 0:
            count = "earlier lines are" if left_out is None else count_of(left_out, "earlier line") + (
                " is" if left_out == 1 else " are")
            say("note", f"... {count} not shown")
        self.show(entries)

    def name(self, replica_id: int) -> str:
        """Return a replica as `status` names it."""
        return f"{self._model}/{replica_id}"

    def _prefix(self, log: EngineLog) -> bytes:
        parts = []
        if self.number is None:
            of_replica = (str(log.replica_id), self._variants.get(log.replica_id, ""),
                          "ended" if log.replica_id in self.ended else "")
            parts = [visible(" ".join(filter(None, of_replica)))]
        if len(self._members.get(log.replica_id, ())) > 1:
            parts.append(visible(log.label))
        return f"[{' '.join(parts)}] ".encode() if parts else b""


def follow_logs(
    client: DashboardClient, page: LogPage, ends: Sequence[LogEnd], running: bool, listed: Callable[[], Listing]
) -> None:
    """Show new lines until the one replica is gone; for a whole model until Ctrl-C, as replicas may come back.

    `ends` = the lines already shown; `running` = whether they are of running replicas.
    """
    def list_now() -> Listing:
        listing = listed()
        page.record(listing.logs)
        page.ended -= {log.replica_id for log in listing.logs}
        return listing

    end_with_reader()
    follower = Follower(client, list_now, ends, running, time.monotonic, time.sleep)
    if not running:
        say("note", "no replica is running" + ("; waiting for one to start" if page.number is None else ""))
        if page.number is not None:
            return
    while page.number is None or follower.absent < ABSENT_LISTINGS:
        news = follower.step()
        for log, missing in news.missing:
            count = "lines are" if missing is None else count_of(missing, "line") + (" is" if missing == 1 else " are")
            say("warning", f"{page.name(log.replica_id)} {log.label}: ... {count} not shown")
        page.show(news.lines)
        say("warning", *(f"not everything can be read; trying again: {failure}" for failure in news.failed))
        say("note", *(f"{page.name(replica_id)} has ended" for replica_id in news.ended))
