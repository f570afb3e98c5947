"""`fleetctl watch`: apply a git branch continuously. This module is the clock and the output of the loop."""

from __future__ import annotations

import random
import shlex
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, NoReturn

import typer

from fleetctl.apply.prepare import ApplyOptions, ApplyTask
from fleetctl.apply.run import Detached, follow, start_apply
from fleetctl.apply.standby import KEEP_S, StandbyKeeper
from fleetctl.cli import flags
from fleetctl.cli.apply_run import delete_after
from fleetctl.cli.commands import MadeBy, command_app
from fleetctl.cli.console import say, write_result
from fleetctl.cli.process import now_text, this_invocation
from fleetctl.cli.verb import new_job_id, patient, starter
from fleetctl.cli.watch_server import serving
from fleetctl.documents.canonical import canonical_json, sha256_hex
from fleetctl.documents.events import RunSummary
from fleetctl.documents.quantity import count_of
from fleetctl.errors import FleetctlError, UsageError
from fleetctl.fleetfile.file_tree import read_whole
from fleetctl.inventory.access import SECRET_BYTES, is_local
from fleetctl.problem import as_utf8
from fleetctl.render.visible import visible
from fleetctl.watch.load_process import inspect_in_subprocess
from fleetctl.watch.plan_process import make_plan_in_subprocess
from fleetctl.watch.pushes import ENCODED, Pushes
from fleetctl.watch.source import Branch, Files, WatchedSource
from fleetctl.watch.step import Event, Looked, MakePlan, Notify, Rest, StartApply, WatchState, step
from fleetctl.watch.watcher import Watcher
from fleetctl.watch.webhook import Webhook
from fleetctl.workflow.contexts import given_address, user_folder
from fleetctl.workflow.dashboard import open_dashboard, warn_if_readable
from fleetctl.workflow.invocation import Invocation

app = command_app(
    "fleetctl watch --repo https://git.example.org/team/fleets",
    "fleetctl watch --repo git@git.example.org:a/b --ref main --path prod.yaml",
    "fleetctl watch -f fleets/prod.yaml --report-only",
    exit_codes="1 error at the start, 64 usage, 130 interrupted, which stops a running apply, 143 terminated, which "
               "does not")
JITTER = 0.1
"""The largest fraction by which a pause is shortened, so that watchers do not all read the cluster at once."""
KEEP_LIMIT_S = 10.0
"""How long a rest may take to look after the agent that waits."""
LOCK_S = 10.0
"""How long an apply may wait for the fleet's lock: another holds it only while it creates. Without the wait its agent
would end, and the next merge would need a new one.
"""
PULSE_S = 1.0
"""How often Ray is asked for the replicas that start, while any does."""

TEXTS = {
    "source": ("the source does not answer: {}", "the source answers again"),
    "revision": ("not used: revision {}", "the newest revision can be used again"),
    "good": ("revision {} is in force", ""),
    "cluster": ("nothing is applied, the cluster cannot be read: {}", "the cluster answers again"),
    "blocked": ("blocked: {}", "nothing is blocked anymore"),
    "policy": ("a person has to apply revision {}", "policy allows the newest plan"),
    "wanted": ("replicas that an apply would create: {}", "nothing is missing"),
    "locked": ("waiting: {}", ""),
    "error": ("failed, will be retried: {}", ""),
    "applied": ("applied: {}", ""),
    "ended": ("ended: {}", ""),
    "outdated": ("outdated: {}", ""),
}
OF_A_PLAN = {"blocked", "policy", "wanted", "applied", "outdated"}
"""News about the current plan; their webhook messages carry its numbers."""

WatchFormat = Literal["text", "jsonl"]


@dataclass(frozen=True, slots=True)
class SourceFlags:
    """What is watched, how often, and which of its commits are used. Seconds."""

    repo: Annotated[str | None, flags.option(
        "--repo", metavar="URL", help="Git repository to follow, as for `git clone`.")] = None
    ref: Annotated[str, flags.option(
        "--ref", metavar="REF", help="Branch or tag in --repo. [default: the default branch]")] = "HEAD"
    path: Annotated[list[str] | None, flags.option(
        "--path", metavar="PATH",
        help="Fleet file or folder in --repo; repeatable, for one fleet in several files. [default: fleets]")] = None
    files: flags.OptionalDiskFiles = None
    interval: Annotated[float, flags.option(
        "--interval", metavar="DURATION", parser=flags.expiry_duration,
        help="How often to check repository and cluster. [default: 30s]")] = 30
    report_only: Annotated[bool, typer.Option(
        "--report-only", help="Plan and report, but apply nothing.")] = False
    require_signature: Annotated[bool, typer.Option(
        "--require-signature", help="Use only commits whose signature `git verify-commit` accepts.")] = False
    allow_rewind: Annotated[bool, typer.Option(
        "--allow-rewind", help="Also use a commit that does not descend from the last good one.")] = False
    clone: Annotated[Path | None, flags.option(
        "--clone", metavar="FOLDER", help="Where to keep the bare clone. [default: the user's cache folder]")] = None

    def open(self, invocation: Invocation, cluster: str) -> WatchedSource:
        """Return what is watched for this cluster; raises UsageError for flags that contradict each other."""
        if bool(self.repo) == bool(self.files):
            raise UsageError("give either --repo URL or -f FLEET",
                             hint="--repo follows a branch, -f files on this disk")
        if self.repo is None:
            if (self.require_signature or self.allow_rewind or self.path or self.clone or self.ref != "HEAD"
                    or "-" in (self.files or ())):
                raise UsageError("-f watches files on this disk; flags about a repository need --repo")
            return Files(tuple(self.files or ()), inspect_in_subprocess)
        if not self.ref:
            raise UsageError("--ref is empty", hint="name a branch or a tag, or leave out --ref for the default branch")
        cache = user_folder(invocation.environ, invocation.home, "XDG_CACHE_HOME", ".cache") / "watch"
        folder = self.clone or cache / sha256_hex(f"{self.repo}\n{self.ref}".encode())[:16]
        return Branch(self.repo, self.ref, tuple(self.path or ("fleets",)), folder, invocation.environ, time.time,
                      self.require_signature, self.allow_rewind, cluster, inspect_in_subprocess)


@dataclass(frozen=True, slots=True)
class ListenFlags:
    """Where the page, the metrics and the health probes are served, and for whom."""

    listen: Annotated[str | None, flags.option(
        "--listen", metavar="HOST:PORT",
        help="Serve a status page, /metrics and health probes on this address over HTTP.")] = None
    token_file: Annotated[Path | None, flags.option(
        "--listen-token-file", metavar="FILE", exists=True, dir_okay=False,
        help="Protect the page and /metrics by the token in this file, sent as bearer token or password.")] = None
    names: Annotated[list[str] | None, flags.option(
        "--listen-name", metavar="NAME",
        help="Serve them also under this host name, besides IP addresses and the machine's own names; repeatable.")
    ] = None
    push_secret_file: Annotated[Path | None, flags.option(
        "--push-secret-file", metavar="FILE", exists=True, dir_okay=False,
        help="Look at once when a webhook of GitHub, GitLab, Gitea or Forgejo with the secret in this file tells of a "
             "push, by POST to /push of --listen.")] = None

    def token(self) -> str | None:
        """Return the token that protects the page; raises UsageError for one that protects nothing."""
        token = _secret_in(self.token_file, "--listen-token-file") if self.token_file else None
        if token and self.listen is None:
            raise UsageError("--listen-token-file needs --listen", hint="such as --listen 127.0.0.1:9464")
        return token

    def pushes(self) -> Pushes | None:
        """Return the pushes that webhooks may tell of; raises UsageError for a secret that proves nothing."""
        if self.push_secret_file is None:
            return None
        secret = _secret_in(self.push_secret_file, "--push-secret-file")
        if self.listen is None:
            raise UsageError("--push-secret-file needs --listen", hint="such as --listen 0.0.0.0:9464")
        return Pushes(secret.encode(), time.time)


@dataclass(frozen=True, slots=True)
class NewsFlags:
    """Where news are sent."""

    webhook_file: Annotated[Path | None, flags.option(
        "--webhook-file", metavar="FILE", exists=True, dir_okay=False,
        help="Send news to the webhook URL in this file, as JSON with a `text`.")] = None
    link: Annotated[str | None, flags.option(
        "--link", metavar="URL", help="Append this link to webhook news; {revision} = the commit.")] = None

    def webhook(self, invocation: Invocation) -> Webhook | None:
        """Return the webhook, if there is one; warns if others can read its address on the way."""
        if self.webhook_file is None:
            return None
        address = _line_in(self.webhook_file, "--webhook-file")
        webhook = Webhook(address, partial(say, "warning"))
        if address:
            warn_if_readable(invocation, address, "the address of the webhook")
        return webhook

    def checked_link(self) -> str:
        """Return the link for webhook news; raises UsageError if it is not a URL, or there is no webhook."""
        if self.link is not None and (
                self.webhook_file is None or not self.link.startswith(("http://", "https://"))):
            raise UsageError("--link needs a URL, and --webhook-file",
                             hint="such as --link https://git.example.org/team/fleets/commit/{revision}")
        return self.link or ""


@app.command()
def watch(
    *,
    watched: Annotated[SourceFlags, MadeBy(SourceFlags)],
    served: Annotated[ListenFlags, MadeBy(ListenFlags)],
    news: Annotated[NewsFlags, MadeBy(NewsFlags)],
    where: flags.Cluster,
    output_format: Annotated[WatchFormat, typer.Option("--format", help="Output format, one line per event.")] = "text",
) -> int:
    """Apply a git branch continuously.

    A revision with errors is reported and skipped: the last good one stays in force. A plan that spec.policy reserves
    for a person is reported once. Nothing is removed. Several watches may run: only one applies at a time. Ctrl-C stops
    a running apply, SIGTERM leaves it running.
    """
    invocation = replace(this_invocation(), working=lambda _: nullcontext(), make_plan=make_plan_in_subprocess)
    source = watched.open(invocation, f"{given_address(invocation, where.address) or ''} {where.namespace or ''}")
    standby = StandbyKeeper(starter(), partial(new_job_id, "apply"), time.monotonic)
    watcher = Watcher(invocation, source, where, time.monotonic, partial(_run, set(), standby),
                      WatchState(watched.interval, watched.report_only), keeps_history=served.listen is not None)
    webhook, token, pushes = news.webhook(invocation), served.token(), served.pushes()
    with serving(watcher, served.listen, token, served.names or (), pushes) as server:
        if server:
            say("listening", f"{server.url}/, metrics below {server.url}/metrics"
                             + (f", webhooks at {server.url}/push" if pushes else ""))
            if token is None and not is_local(server.url):
                say("warning", f"whoever reaches {served.listen} can read the page and the metrics; "
                               "--listen-token-file FILE protects them by a token")
        try:
            _loop(watcher, partial(_tell, watcher, output_format, webhook, news.checked_link()),
                  server.turned if server else lambda: None,
                  partial(_rest, watcher, pushes, partial(_keep, watcher, standby)))
        finally:
            source.close()
            if webhook:
                webhook.close()


def _secret_in(file: Path, flag: str) -> str:
    """Return the secret in a file. Raises UsageError for one that would admit anyone, or nobody who knows the file."""
    secret = _line_in(file, flag)
    if not secret.removeprefix(ENCODED):
        raise UsageError(f"{flag} {file} is empty")
    if not secret.isprintable() or "\ufffd" in secret:
        raise UsageError(f"{flag} {file} is not one line of UTF-8 text",
                         hint=f"such as: openssl rand -hex 32 > {shlex.quote(str(file))}")
    return secret


def _line_in(file: Path, flag: str) -> str:
    try:
        return read_whole(file, SECRET_BYTES).decode(errors="replace").strip()
    except OSError as error:
        raise UsageError(f"{flag} {file} cannot be read: {error.strerror}") from None


def _loop(watcher: Watcher, tell: Callable[[Notify], None], turned: Callable[[], None],
          rest: Callable[[float], None]) -> NoReturn:
    watcher.note_turn(0)
    happened: Event = _look(watcher)
    while True:
        watcher.state, todo = step(watcher.state, happened)
        for do in todo:
            if isinstance(do, Notify):
                tell(do)
            elif isinstance(do, MakePlan):
                happened = watcher.plan(do.revision)
            elif isinstance(do, StartApply):
                watcher.note_turn(None)
                happened = watcher.apply()
            elif isinstance(do, Rest):
                turned()
                watcher.note_turn(do.seconds)
                rest(do.seconds * random.uniform(1 - JITTER, 1))  # noqa: S311  not a secret
                happened = _look(watcher)


def _keep(watcher: Watcher, standby: StandbyKeeper) -> None:
    """See that an agent waits for the next plan. That none does is no news: then an apply starts its own."""
    planned = watcher.planned
    if planned is not None and not watcher.state.report_only:
        with suppress(FleetctlError), open_dashboard(
                watcher.invocation, watcher.where.address, planned.fleet.cluster.address) as client:
            standby.keep(client.within(KEEP_LIMIT_S), planned.plan.fleet)


def _rest(watcher: Watcher, pushes: Pushes | None, keep: Callable[[], None], seconds: float) -> None:
    """Wait this long, or until a push comes, or a replica that was begun goes on: one cheap GET a second tells that."""
    until, starting = time.monotonic() + seconds, watcher.starting()
    while (left_s := until - time.monotonic()) > 0:
        keep()
        wait_s = min(left_s, KEEP_S if starting is None else PULSE_S)
        if pushes is None:
            time.sleep(wait_s)
        elif pushes.wait(wait_s):
            return
        if starting is not None and watcher.starting() != starting:
            return


def _look(watcher: Watcher) -> Looked:
    watcher.looked_at = time.time()
    return watcher.look()


def _tell(watcher: Watcher, output_format: WatchFormat, webhook: Webhook | None, link: str, news: Notify) -> None:
    begins, ends = TEXTS[news.about]
    shown = as_utf8(news.text)  # JSON may contain half of a surrogate pair
    text = begins.format(shown) if shown else ends
    line: dict[str, object] = {"time": now_text(), "about": news.about, "text": shown, "over": not shown}
    if output_format == "jsonl":
        write_result(canonical_json(line).decode() + "\n")
    elif text:
        write_result(f"{now_text()} {visible(text)}\n")
    if text:
        watcher.say(now_text(), text)
    if webhook and text:
        fleet, revision = watcher.good.sound().name if watcher.good else "", watcher.state.good or ""
        more = {**line, "fleet": fleet, "revision": revision, "link": link.replace("{revision}", revision)}
        if news.about in OF_A_PLAN and watcher.planned:
            more["plan"] = watcher.planned.plan.summary.model_dump(mode="json", by_alias=True)
        webhook.send(f"{fleet or 'fleetctl watch'}: {text}\n{more['link']}".rstrip(), more)


def _run(said: set[str], standby: StandbyKeeper, task: ApplyTask) -> RunSummary:
    """Apply, follow until everything is created, and delete old runs, with each problem of that `said` once.

    Meanwhile another agent is started for the next plan. Ctrl-C stops the apply, then the watch, however the apply
    ends.
    """
    interrupts, planned = list[str](), task.plan.summary
    options = ApplyOptions(wait=False, lock_timeout_s=LOCK_S)
    started = start_apply(task, new_job_id("apply"), starter(), options, patient(), standby=standby.job)
    job = started.submission_id
    reload = f", {planned.reload} to reload" if planned.reload else ""
    say("job", f"{job}: {count_of(planned.create, 'replica')} to create{reload}")

    def keep(_: object = None) -> None:
        with suppress(FleetctlError):
            standby.keep(task.client, task.plan.fleet)

    standby.look_now()
    keep()
    try:
        summary = follow(started, keep, announce=lambda: interrupts.append(job))
    except Detached:
        raise KeyboardInterrupt from None
    except FleetctlError as error:
        if not interrupts:
            raise
        say("warning", error.message)
        raise KeyboardInterrupt from None
    if interrupts:
        raise KeyboardInterrupt
    delete_after(task, said)
    return summary
