"""`fleetctl logs MODEL`: the logs of all replicas merged by time, and followed. LocalAI F4 to F7."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster_stand_in import ClusterStandIn
from stamped import stamped

from fleetctl.cli import logs
from fleetctl.cli.logs import ENDED_SHOWN
from fleetctl.inventory.engine_log import log_name

MODEL = "org/one:1"


def write_log(
    cluster: ClusterStandIn, node: int, replica: int, text: str, *, model: str = MODEL, file: str = ""
) -> None:
    """Write the log of a replica's only member."""
    cluster.log_files[cluster.nodes[node]["node_id"], log_name("fleet", model, replica, "main", 0, 0) + file] = text


@pytest.fixture
def running(cluster: ClusterStandIn) -> ClusterStandIn:
    """Two replicas of a model, and another model."""
    for replica in (0, 1):
        cluster.add_replica(MODEL, replica, cluster.nodes[replica]["node_id"])
    cluster.add_replica("org/one", 0, cluster.nodes[0]["node_id"])
    write_log(cluster, 0, 0, stamped((1, "first"), (30, "third"), before=5))
    write_log(cluster, 1, 1, stamped((2, "second"), (40, "fourth")))
    write_log(cluster, 0, 0, stamped((1, "foreign")), model="org/one")
    return cluster


def test_f4_the_logs_of_a_model_are_merged_by_time_without_another_model(cli, running: ClusterStandIn) -> None:
    result = cli("logs", MODEL)
    assert result.out == "[0] first\n[1] second\n[0] third\n[1] fourth\n"
    assert result.err == "note: ... 5 earlier lines are not shown\n"
    assert cli("logs", MODEL, "--timestamps").out.startswith("[0] 2026-03-04T12:00:01.000Z first\n")


def test_ended_siblings_are_marked_as_ended(cli, running, monkeypatch: pytest.MonkeyPatch) -> None:
    running.ahead_s = None
    monkeypatch.setattr("fleetctl.cli.process.now_text", lambda: "2026-03-04T12:01:00Z")
    running.add_node("node-c")
    running.add_failure(MODEL, running.nodes[2]["node_id"], "h", "CUDA out of memory")
    running.actors[-1]["name"] = f"ModelActor:{MODEL}:7"
    write_log(running, 2, 7, stamped((35, "CUDA out of memory")))
    write_log(running, 0, 3, stamped((3, "evicted")))
    assert cli("logs", MODEL).out == (
        "[0] first\n[1] second\n[3 ended] evicted\n[0] third\n[7 ended] CUDA out of memory\n[1] fourth\n")
    assert cli("logs", MODEL, "--since", "30s").out == "[0] third\n[7 ended] CUDA out of memory\n[1] fourth\n"
    for number in range(10, 10 + ENDED_SHOWN):
        write_log(running, 0, number, stamped((36, "many")))
    result = cli("logs", MODEL, "--since", "30s")
    assert (result.out.count("ended] many"), "CUDA" in result.out) == (ENDED_SHOWN, False)
    assert "2 older ended replicas not shown" in result.err


def test_tail_counts_lines_of_the_merged_logs(cli, running: ClusterStandIn) -> None:
    result = cli("logs", MODEL, "--tail", "1")
    assert (result.out, result.err) == ("[1] fourth\n", "note: ... 8 earlier lines are not shown\n")


def test_lines_of_one_moment_stay_together_and_are_counted(cli, running: ClusterStandIn) -> None:
    lines = "".join(f"2026-03-04T12:00:30.000Z#1 {place}\n" for place in range(40))
    write_log(running, 0, 0, stamped((1, "a")) + lines)
    result = cli("logs", f"{MODEL}/0", "--tail", "5")
    assert (result.out, result.err) == ("35\n36\n37\n38\n39\n", "note: ... 36 earlier lines are not shown\n")


def test_since_leaves_out_older_lines(cli, running, monkeypatch: pytest.MonkeyPatch) -> None:
    running.ahead_s = None
    monkeypatch.setattr("fleetctl.cli.process.now_text", lambda: "2026-03-04T12:01:00Z")
    result = cli("logs", MODEL, "--since", "30s")
    assert (result.out, result.err) == ("[0] third\n[1] fourth\n", "")
    assert cli("logs", MODEL, "--since", "1s").out == ""


def test_a_rotated_file_is_read_if_needed(cli, running: ClusterStandIn) -> None:
    write_log(running, 0, 0, stamped((1, "a"), (2, "b")) + "2026-03-04T12:00:03.000Z#2 c, which goes ", file=".1")
    write_log(running, 0, 0, "on\n" + stamped((4, "d"), before=3))
    result = cli("logs", f"{MODEL}/0")
    assert (result.out, result.err) == ("a\nb\nc, which goes on\nd\n", "")
    assert cli("logs", f"{MODEL}/0", "--tail", "1").out == "d\n"


def test_f5_a_log_that_several_nodes_serve_is_shown_once(cli, running: ClusterStandIn) -> None:
    """Raylets on the same host share a log folder."""
    running.actors.clear()
    write_log(running, 1, 0, stamped((1, "first"), (30, "third"), before=5))
    for node in (0, 1):
        write_log(running, node, 0, stamped(*[(0, "old")] * 5), file=".1")
    assert cli("logs", MODEL, "--tail", "5").out == "[0] old\n[0] first\n[1] second\n[0] third\n[1] fourth\n"


def test_a_key_that_looks_like_a_replica_is_resolved_as_in_other_commands(cli, running: ClusterStandIn) -> None:
    running.add_replica(f"{MODEL}/1", 7, running.nodes[0]["node_id"])
    write_log(running, 0, 7, stamped((1, "seventh")), model=f"{MODEL}/1")
    result = cli("logs", f"{MODEL}/1")
    assert result.code == 64
    assert "--replica-id 1" in result.err
    assert cli("logs", MODEL, "--replica-id", "1").out == "second\nfourth\n"
    running.actors[:] = running.actors[-1:]
    assert cli("logs", f"{MODEL}/1").out == "[7] seventh\n"


class FakeClock:
    """A clock that moves only during sleeps; every 10 s it runs a step, and after the last step comes Ctrl-C."""

    def __init__(self, *steps: Callable[[], object], pause_s: float = 10.0) -> None:
        self.now = 0.0
        self.steps = list(steps)
        self.pause_s = pause_s

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now >= self.pause_s:
            self.pause_s += 10.0
            if not self.steps:
                raise KeyboardInterrupt
            self.steps.pop(0)()


@pytest.fixture
def run_steps(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeClock]:
    def start(*steps: Callable[[], object]) -> FakeClock:
        clock = FakeClock(*steps)
        monkeypatch.setattr(logs, "time", clock)
        return clock
    return start


def append_log(cluster: ClusterStandIn, replica: int, text: str, *, model: str = MODEL) -> None:
    name = log_name("fleet", model, replica, "main", 0, 0)
    [key] = [key for key in cluster.log_files if key[1] == name]
    cluster.log_files[key] += text


def write_to_all(cluster: ClusterStandIn) -> None:
    append_log(cluster, 1, stamped((61, "from 1"), before=2))
    append_log(cluster, 0, stamped((60, "from 0"), before=7))
    append_log(cluster, 0, stamped((62, "foreign news"), before=1), model="org/one")


def test_f6_following_a_model_shows_all_its_replicas_and_no_foreign_line(
    cli, running: ClusterStandIn, run_steps
) -> None:
    run_steps(lambda: write_to_all(running))
    result = cli("logs", MODEL, "-f", "--tail", "1")
    assert result.code == 130
    assert result.out == "[1] fourth\n[0] from 0\n[1] from 1\n"


def test_f7_following_a_replica_shows_only_that_replica(cli, running: ClusterStandIn, run_steps) -> None:
    run_steps(lambda: write_to_all(running))
    assert cli("logs", f"{MODEL}/1", "-f", "--tail", "0").out == "from 1\n"


def test_a_replica_that_starts_later_joins_without_its_older_lines(cli, running: ClusterStandIn, run_steps) -> None:
    def start() -> None:
        running.add_replica(MODEL, 2, running.nodes[0]["node_id"])
        write_log(running, 0, 2, stamped((1, "an earlier life"), (50, "fleetctl: starting main/0"), (51, "up")))

    run_steps(start, lambda: None, lambda: append_log(running, 2, stamped((52, "more"), before=3)))
    assert cli("logs", MODEL, "-f", "--tail", "0").out == "[2] fleetctl: starting main/0\n[2] up\n[2] more\n"


def test_following_one_replica_ends_with_it_and_shows_its_last_lines(cli, running: ClusterStandIn, run_steps) -> None:
    def end() -> None:
        append_log(running, 1, stamped((60, "fatal"), before=2) + "2026-03-04T12:01:00.000Z#3 cut o")
        running.actors.pop(1)

    run_steps(end, *[lambda: None] * 9)
    result = cli("logs", f"{MODEL}/1", "-f")
    assert (result.code, result.out) == (0, "second\nfourth\nfatal\ncut o\n")
    assert f"{MODEL}/1 has ended" in result.err


def test_following_a_model_without_replicas_shows_old_logs_and_waits(
        cli, running: ClusterStandIn, run_steps) -> None:
    run_steps(lambda: running.add_replica(MODEL, 1, running.nodes[1]["node_id"]),
         lambda: append_log(running, 1, stamped((50, "fleetctl: starting main/0"), (51, "up"), before=2)), lambda: None)
    running.actors.clear()
    assert cli("logs", f"{MODEL}/0", "-f").out == "first\nthird\n"
    result = cli("logs", MODEL, "-f", "--tail", "1")
    assert (result.code, result.out) == (130, "[1] fourth\n[1] fleetctl: starting main/0\n[1] up\n")
    assert cli("logs", f"{MODEL}/1", "-f", "--rank", "9").code == 1


@pytest.mark.slow
def test_no_line_is_lost_or_repeated_while_the_cluster_is_unreachable(cli, running: ClusterStandIn, run_steps) -> None:
    def away() -> None:
        running.refusals["GET", "/api/v0/logs/file"] = [(503, "")] * 1000
        running.refusals["GET", "/api/v0/nodes"] = [(503, "")] * 1000

    def back() -> None:
        running.refusals.clear()
        append_log(running, 0, stamped(*((60 + place, f"line {place}") for place in range(300)), before=7))

    run_steps(away, lambda: None, back, lambda: None, lambda: None)
    result = cli("logs", f"{MODEL}/0", "-f")
    assert result.out == "first\nthird\n" + "".join(f"line {place}\n" for place in range(300))
    assert result.err.count("warning") <= 2
    assert "503" in result.err


def test_an_unfinished_line_is_shown_when_it_is_complete(cli, running: ClusterStandIn, run_steps) -> None:
    run_steps(lambda: append_log(running, 0, "2026-03-04T12:01:00.000Z#7 half"),
              lambda: append_log(running, 0, " and half\n"), lambda: None)
    assert cli("logs", f"{MODEL}/0", "-f", "--tail", "0").out == "half and half\n"


def test_skipped_lines_are_counted_and_rotation_loses_nothing(cli, running: ClusterStandIn, run_steps) -> None:
    def too_fast() -> None:
        write_log(running, 0, 0, stamped((70, "much later"), (71, "later"), before=100))

    def another_file() -> None:
        write_log(running, 0, 0, stamped((70, "much later"), (71, "later"), (72, "the last of it"), before=100),
                  file=".1")
        write_log(running, 0, 0, stamped((73, "the first of the next"), before=103))

    run_steps(too_fast, another_file, lambda: None)
    result = cli("logs", f"{MODEL}/0", "-f", "--tail", "0")
    assert result.out == "much later\nlater\nthe last of it\nthe first of the next\n"
    assert result.err.splitlines()[-1] == f"warning: {MODEL}/0 main/0 rank 0: ... 93 lines are not shown"


def test_fifty_idle_replicas_take_few_requests(cli, cluster: ClusterStandIn, run_steps) -> None:
    for replica in range(50):
        cluster.add_replica(MODEL, replica, cluster.nodes[0]["node_id"], gpus=0)
        write_log(cluster, 0, replica, stamped((1, "up"), (2, "serving")))
    clock = run_steps(*[lambda: None] * 5)
    assert cli("logs", MODEL, "-f").code == 130
    polls = [path for _, path in cluster.requests if path == "/api/v0/logs/file"]
    assert len(polls) < 16 * clock.now


@pytest.mark.slow
@pytest.mark.parametrize(("leave", "code"), [
    (lambda process: process.send_signal(signal.SIGINT), 130), (lambda process: process.stdout.close(), 141),
], ids=["ctrl-c", "the reader leaves"])
def test_following_ends_with_its_reader_or_a_signal(
    running: ClusterStandIn, tmp_path: Path, leave: Callable[[object], None], code: int
) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "fleetctl", "logs", MODEL, "-f", "--address", running.url], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"[0] first\n"
        leave(process)
        assert process.wait(300) == code


def test_lines_name_the_variant_that_a_replica_was_started_as(cli, cluster: ClusterStandIn) -> None:
    for replica, variant in enumerate(("h100-fp8", None, "a100")):
        cluster.add_replica(MODEL, replica, cluster.nodes[0]["node_id"], variant=variant)
        write_log(cluster, 0, replica, stamped((replica, f"line of {replica}")))
    write_log(cluster, 0, 7, stamped((9, "evicted")))
    assert cli("logs", MODEL).out == (
        "[0 h100-fp8] line of 0\n[1] line of 1\n[2 a100] line of 2\n[7 ended] evicted\n")
    assert cli("logs", f"{MODEL}/0").out == "line of 0\n"
