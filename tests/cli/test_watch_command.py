"""`fleetctl watch` as a command: its flags, its messages, and its end by an interrupted apply."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast, get_args

import pytest
from cluster_stand_in import Answer, ClusterStandIn, all_ready
from small_plans import small_plan
from small_watcher import advance, watcher_of

from fleetctl.apply.prepare import ApplyTask, Starter
from fleetctl.apply.run import Detached, Started
from fleetctl.apply.standby import StandbyKeeper
from fleetctl.cli import watch
from fleetctl.documents.events import RunSummary
from fleetctl.errors import ApplyError
from fleetctl.inventory.client import DashboardClient
from fleetctl.watch.step import Notify
from fleetctl.watch.webhook import Webhook

SUMMARY = RunSummary(seq=1, time="2026-03-04T12:00:00Z", message="1 of 1 ready", exit_code=0)


@pytest.fixture
def apply(cluster: ClusterStandIn, monkeypatch: pytest.MonkeyPatch) -> Callable[..., RunSummary]:
    """Run an apply whose client is interrupted or not and then ends with `failure` or `summary`."""
    said = set[str]()

    def run(failure: Exception | None = None, summary: RunSummary = SUMMARY, *, interrupted: bool) -> RunSummary:
        def follow(_: object, relay: object, announce: Callable[[], None]) -> RunSummary:
            if interrupted:
                announce()
            if failure is not None:
                raise failure
            return summary

        monkeypatch.setattr(watch, "start_apply", lambda task, job, *_, **__: Started(task.client, job))
        monkeypatch.setattr(watch, "follow", follow)
        with DashboardClient(cluster.url) as client:
            standby = StandbyKeeper(Starter("ann"), lambda: "s", lambda: 0.0)
            return watch._run(said, standby, ApplyTask(client, small_plan("a")))

    return run


@pytest.mark.parametrize("failure", [None, Detached("j", stopped=True), ApplyError("the job could not be stopped")])
def test_ctrl_c_ends_the_watch_however_the_apply_ends(
    apply: Callable[..., RunSummary], failure: Exception | None
) -> None:
    with pytest.raises(KeyboardInterrupt):
        apply(failure, interrupted=True)


def test_a_watch_hands_its_plan_to_the_agent_that_it_keeps_and_starts_the_next(
    cluster: ClusterStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = cluster._package

    def package(method: str, name: str, body: bytes) -> Answer:
        """The agent that waits: it takes what is put for it."""
        answer = store(method, name, body)
        job = cluster.jobs.get(name.removesuffix("-plan"))
        if method == "PUT" and name.endswith("-plan") and job:
            handed = cluster.document(name)
            job.body["metadata"] |= {**handed["metadata"], "verb": "apply", "ticket": handed["ticket"]}
            job.steps = all_ready(handed["request"])
        return answer

    monkeypatch.setattr(cluster, "_package", package)
    cluster.on_submit = lambda request: all_ready(request) if "plan" in request else [("RUNNING", "")]
    numbers, plan = iter(range(9)), small_plan("a", "b")
    standby = StandbyKeeper(Starter("a watch"), lambda: f"fleetctl-apply-{next(numbers):012x}", lambda: 0.0)
    with DashboardClient(cluster.url) as client:
        for _ in range(3):
            assert watch._run(set(), standby, ApplyTask(client, plan)).exit_code == 3
    verbs = [cluster.jobs[job].body["metadata"]["verb"] for job in cluster.jobs]
    assert verbs == ["apply", "apply", "apply", "standby"], "one job a plan, and one that waits"
    assert sum("ticket" in job.body["metadata"] for job in cluster.jobs.values()) == 2
    own = next(job for job in cluster.jobs if "ticket" not in cluster.jobs[job].body["metadata"])
    assert cluster.request_of(own)["lockTimeout"] == 10, "an agent that ends at once costs the next merge a new job"


def test_a_watch_keeps_an_agent_once_it_has_planned_and_none_if_it_only_reports(
    cluster: ClusterStandIn, tmp_path: Path
) -> None:
    cluster.on_submit = lambda _: [("RUNNING", "")]
    cluster.add_node("a")
    watcher = watcher_of(cluster, tmp_path / "fleet.yaml")
    standby = StandbyKeeper(Starter("a watch"), lambda: "fleetctl-apply-000000000001", lambda: 0.0)
    watch._keep(watcher, standby)
    assert cluster.requests == [], "nothing is known of the fleet yet"
    advance(watcher)
    watcher.state = replace(watcher.state, report_only=True)
    watch._keep(watcher, standby)
    assert not cluster.jobs
    watcher.state = replace(watcher.state, report_only=False)
    cluster.refusals["POST", "/api/jobs/"] = [(403, "")]
    watch._keep(watcher, standby)
    assert not cluster.jobs, "a refusal is no news: an apply starts its own agent"
    standby.look_now()
    watch._keep(watcher, standby)
    assert [job.body["metadata"]["verb"] for job in cluster.jobs.values()] == ["standby"]


def test_an_apply_that_another_person_stops_does_not_end_the_watch(apply: Callable[..., RunSummary]) -> None:
    stopped = SUMMARY.model_copy(update={"interrupted": True})
    assert apply(None, stopped, interrupted=False) == stopped
    with pytest.raises(ApplyError):
        apply(ApplyError("the agent died"), interrupted=False)


@pytest.mark.parametrize(("listen", "with_token", "warned"), [
    ("0.0.0.0:0", False, True), ("[::]:0", False, True), ("0.0.0.0:0", True, False), ("127.0.0.1:0", False, False),
    (":0", False, False), ("localhost:0", False, False),
])
def test_a_page_for_other_machines_without_a_token_is_a_warning(
    cli, fleet_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listen: str, with_token: bool, warned: bool
) -> None:
    def loop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(watch, "_loop", loop)
    (tmp_path / "token").write_text("a-token")
    more = ["--listen-token-file", tmp_path / "token"] if with_token else []
    done = cli("watch", "-f", fleet_file, "--listen", listen, *more)
    if "[::]" in listen and "--listen" in done.err and done.code == 64:
        pytest.skip("no IPv6 here")
    assert done.code == 130
    assert done.err.count("can read the page and the metrics; --listen-token-file FILE") == int(warned)


def test_that_old_runs_cannot_be_deleted_is_said_once(
    apply: Callable[..., RunSummary], cluster: ClusterStandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(1_100):
        job = cluster.add_job(f"fleetctl-apply-{number:012x}", verb="apply", fleet="lab", namespace="fleet")
        job.status = "SUCCEEDED"
    cluster.refusals["DELETE", "/api/jobs/"] = [(405, "405: Method Not Allowed")] * 99
    assert [apply(interrupted=False) for _ in range(3)] == [SUMMARY] * 3
    assert capsys.readouterr().err.count("old runs stay in the cluster's list of jobs") == 1
    cluster.refusals.clear()
    apply(interrupted=False)
    assert "101 ended runs deleted" in capsys.readouterr().err, "the agent that waits counts as one of the newest runs"


@pytest.mark.parametrize(("flags", "message"), [
    (["--interval", "0s"], "is too short"), (["--listen-token-file", "empty"], "is empty"), (["--path", "x"], "--repo"),
    (["--link", "https://fleets.example.org/"], "--webhook-file"), (["--listen", "abc"], "abc: expected HOST:PORT"),
    (["--listen", "127.0.0.1:65536"], "65536: expected HOST:PORT"), (["--listen-token-file", "token"], "--listen"),
    (["--listen-name", "fleet.example.org"], "needs --listen"), (["--push-secret-file", "token"], "needs --listen"),
    (["--listen", "127.0.0.1:0", "--push-secret-file", "empty"], "is empty"),
    (["--listen", "127.0.0.1:0", "--push-secret-file", "no-key"], "is empty"),
    *((["--listen", "127.0.0.1:0", flag, name], "is not one line of UTF-8 text")
      for flag in ("--push-secret-file", "--listen-token-file") for name in ("two-lines", "binary", "utf-16")),
    (["--listen", "127.0.0.1:0", "--listen-name", "https://fleet.example.org"], "expected a host name"),
    (["--listen", "127.0.0.1:0", "--listen-name", "fleet.example.org:443"], "expected a host name")])
def test_invalid_flags_are_refused(
    cli, fleet_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str], message: str
) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "token").write_text("a-secret\n")
    (tmp_path / "no-key").write_text("whsec_\n")
    (tmp_path / "two-lines").write_text("a-secret\nanother\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00secret")
    (tmp_path / "utf-16").write_text("a-secret", encoding="utf-16")  # as PowerShell writes it
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(watch, "_loop", lambda *_: None)
    refused = cli("watch", "-f", fleet_file, *flags)
    assert (refused.code, message in refused.err) == (64, True)


def test_a_binary_file_has_no_webhook_address(cli, fleet_file: Path, tmp_path: Path) -> None:
    (tmp_path / "hook").write_bytes(b"\xff\xfeh\0")
    refused = cli("watch", "-f", fleet_file, "--webhook-file", tmp_path / "hook")
    assert (refused.code, "is not a URL" in refused.err) == (1, True)


@pytest.mark.parametrize("output", get_args(watch.WatchFormat))
def test_a_message_with_invalid_text_is_still_sent(
    cluster: ClusterStandIn, tmp_path: Path, capfd: pytest.CaptureFixture[str], output: watch.WatchFormat
) -> None:
    sent: list[str] = []
    hook = cast("Webhook", SimpleNamespace(send=lambda text, more: sent.append(f"{text} {more}")))
    watch._tell(watcher_of(cluster, tmp_path / "fleet.yaml"), output, hook, "", Notify("error", "no \udcff"))
    assert r"no \udcff" in capfd.readouterr().out.replace(r"\\", "\\")
    assert sent[0].encode()


def test_an_empty_ref_is_refused_and_not_the_default_branch(
    cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_loop", lambda *_: None)
    refused = cli("watch", "--repo", "https://git.example.org/a", "--ref", "")
    assert (refused.code, "--ref is empty" in refused.err) == (64, True)


def test_messages_to_the_webhook_have_the_link_and_the_numbers_of_the_plan(
    cluster: ClusterStandIn, tmp_path: Path
) -> None:
    sent: list[tuple[str, dict[str, Any]]] = []
    watcher = watcher_of(cluster, tmp_path / "fleet.yaml")
    hook = cast("Webhook", SimpleNamespace(send=lambda text, more: sent.append((text, more))))
    advance(watcher)
    for about in ("good", "blocked"):
        watch._tell(watcher, "text", hook, "https://git.example.org/{revision}", Notify(about, "x"))
    link = f"https://git.example.org/{watcher.state.good}"
    assert [text for text, _ in sent] == [f"lab: revision x is in force\n{link}", f"lab: blocked: x\n{link}"]
    assert [more.get("plan", {}).get("wanted") for _, more in sent] == [None, 3]
    assert {more["link"] for _, more in sent} == {link}
