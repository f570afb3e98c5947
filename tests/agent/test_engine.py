"""One engine as an actor runs it: readiness, liveness, last output, and no process left behind."""

from __future__ import annotations

import fcntl
import os
import pickle
import shlex
import shutil
import signal
import socket
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from engine_run import ENDS, Run, engine_like, server, unstamped
from marked_processes import FAMILY, PRINTS_ON_CUE, alive, children, eventually, marked, parent_of

from fleetctl.agent import guarded, supervisor
from fleetctl.agent.engine import EngineProcess
from fleetctl.agent.messages import Engine, Probe
from fleetctl.agent.report import StartFailed
from fleetctl.agent.supervisor import GONE


def test_without_a_probe_ready_means_alive_for_a_while(run: Run, mark: str) -> None:
    actor = run("sleep", "1000")
    pid = actor.read_report("ready")
    assert pid in marked(mark)


def test_without_a_probe_an_engine_that_ends_immediately_is_not_ready(run: Run) -> None:
    actor = run("sh", "-c", "echo no weights; exit 3", order=ENDS)
    assert actor.read_report("failed", "ready") == {
        "failed": "ENGINE_EXITED",
        "message": "the engine exited with code 3 before it was ready; last output: no weights"}


@pytest.mark.parametrize(("command", "message"), [
    ("kill -9 $$$$", "the engine was ended by signal 9 before it was ready; it wrote nothing"),
    ("exit 0", "the engine exited with code 0 before it was ready; it wrote nothing"),
])
def test_the_way_an_engine_ended_is_reported(run: Run, command: str, message: str) -> None:
    actor = run("sh", "-c", command, readiness={"exec": {"command": ["false"]}, "period": 0.05})
    assert actor.read_report("failed") == {"failed": "ENGINE_EXITED", "message": message}


NO_IMAGE = "localhost/vllm:1: image not known"


@pytest.mark.parametrize(("command", "code"), [
    (f"echo 'Error: {NO_IMAGE}' >&2; exit 125", "IMAGE_MISSING"), (f"echo '{NO_IMAGE}'; exit 1", "ENGINE_EXITED"),
    ("echo 'Error: unknown flag' >&2; exit 125", "ENGINE_EXITED")])
def test_an_engine_whose_image_is_missing_has_a_code_of_its_own(run: Run, command: str, code: str) -> None:
    actor = run("sh", "-c", command, readiness={"exec": {"command": ["false"]}, "period": 0.05})
    assert actor.read_report("failed")["failed"] == code


@pytest.mark.parametrize(("kills", "command", "message"), [
    (13, "kill -9 $$$$", "signal 9 (meanwhile the kernel killed a process of this host for lack of memory) before"),
    (12, "kill -9 $$$$", "signal 9 before"), (13, "kill -11 $$$$", "signal 11 before"), (13, "exit 9", "code 9 before"),
])
def test_a_kill_for_memory_is_reported_as_such(
    run: Run, tmp_path: Path, kills: int, command: str, message: str
) -> None:
    counters = tmp_path / "vmstat"
    counters.write_text("drop_slab 5\noom_kill 12\n")
    actor = run("sh", "-c", f"echo oom_kill {kills} > {counters}; {command}",
                readiness={"exec": {"command": ["false"]}, "period": 0.05}, order={"counters": str(counters)})
    assert f"{message} it was ready" in actor.read_report("failed")["message"]


def test_the_last_output_is_of_the_current_life_only(run: Run, tmp_path: Path) -> None:
    (tmp_path / "engine.log").write_text("words of an earlier life\n")
    actor = run("sh", "-c", "printf 'x%.0s' $(seq 5000); printf '\\377 the end'; exit 1", order=ENDS)
    message = actor.read_report("failed")["message"]
    assert message.endswith("x\N{REPLACEMENT CHARACTER} the end")
    assert "earlier" not in message
    assert len(message) < 2_200


@pytest.mark.parametrize("host", ["127.0.0.1", ""])
def test_an_engine_is_ready_when_its_http_probe_passes_on_its_own_port(run: Run, host: str) -> None:
    actor = run(*server(host), readiness={"http": {"path": "/health"}, "period": 0.05})
    port = actor.read_report("created")
    eventually(lambda: "loading" in actor.written(), "the engine is up")
    (actor.temp / actor.fresh_folders()[0] / "healthy").touch()
    actor.read_report("ready")
    assert actor.read_report("serves") == port


def test_an_engine_is_ready_when_its_tcp_probe_connects(run: Run) -> None:
    actor = run(*server(), readiness={"tcp": {}, "period": 0.05})
    actor.read_report("ready")


def test_readiness_is_probed_quickly_at_first_whatever_the_period(run: Run) -> None:
    begun = time.monotonic()
    run(*server(), readiness={"tcp": {}, "period": 100}).read_report("ready")
    assert time.monotonic() - begun < 50


def test_an_exec_probe_runs_in_the_engines_folder_and_environment(run: Run) -> None:
    """References in its command are expanded, too."""
    probe = 'test "$(cat "$1")" = up && test "$MODE" = fast'
    actor = run("sh", "-c", 'printf up > "port-$FLEETCTL_PORT"; exec sleep 1000', env={"MODE": "fast"},
                readiness={"exec": {"command": ["sh", "-c", probe, "sh", "port-$(FLEETCTL_PORT)"]}, "period": 0.05})
    actor.read_report("ready")
    assert len(actor.fresh_folders()) == 1


def test_an_engine_that_is_not_ready_in_time_is_ended_and_its_last_output_is_kept(run: Run, mark: str) -> None:
    actor = run(sys.executable, "-I", "-S", "-c", FAMILY, readiness={"exec": {"command": ["false"]}, "period": 0.2},
                order={"startupTimeout": 6})
    failed = actor.read_report("failed")
    assert failed["failed"] == "STARTUP_TIMEOUT"
    assert failed["message"] == (
        "not ready within its startupTimeout of 6 s (false: exit code 1); last output: family complete")
    eventually(lambda: not marked(mark), "the whole family is gone")
    assert actor.fresh_folders() == []


def test_an_engine_is_watched_until_it_ends(run: Run) -> None:
    actor = run("sh", "-c", "while ! test -e go; do sleep 0.05; done; echo out of memory; exit 9")
    actor.read_report("ready")
    (actor.temp / actor.fresh_folders()[0] / "go").touch()
    assert actor.read_report("down") == "the engine exited with code 9; last output: out of memory"
    assert actor.fresh_folders() == []


def test_the_reason_is_the_first_error_of_the_engines_processes_and_its_end_is_shown_as_on_a_terminal(run: Run) -> None:
    worker = "import sys; print('loading  0%', end='\\rloading 50%\\n', flush=True); raise ValueError('no room')"
    script = (f"{sys.executable} -c {shlex.quote(worker)}; echo RuntimeError: Engine core initialization failed. See"
              " root cause above >&2; echo 'UserWarning: resource_tracker: leaked' >&2; exit 1")
    message = run("sh", "-c", script, order=ENDS).read_report("failed")["message"]
    reason, _, output = message.partition("; last output: ")
    assert reason == "the engine exited with code 1 before it was ready; cause: ValueError: no room"
    assert output.splitlines()[0] == "loading 50%"
    assert output.endswith("resource_tracker: leaked")


def test_an_engine_that_was_ready_and_ends_without_an_error_says_so(run: Run) -> None:
    actor = run("sh", "-c", "while ! test -e go; do sleep 0.05; done")
    actor.read_report("ready")
    (actor.temp / actor.fresh_folders()[0] / "go").touch()
    assert actor.read_report("down") == (
        "the engine ended by itself with code 0, as if it had been asked to; it wrote nothing")


def test_an_engine_is_down_after_enough_liveness_failures_in_a_row(run: Run, mark: str, tmp_path: Path) -> None:
    """The probe's own count shows that one success in between resets the count."""
    tries = tmp_path / "tries"
    probe = f'echo >> {tries}; n=$(wc -l < {tries}); test "$n" = 3'
    actor = run("sleep", "1000",
                liveness={"exec": {"command": ["sh", "-c", probe]}, "period": 0.02, "failureThreshold": 3})
    assert actor.read_report("down") == "liveness failed 3 times in a row (sh: exit code 1); it wrote nothing"
    assert tries.read_text().count("\n") == 6
    eventually(lambda: not marked(mark), "the engine was ended")


def test_with_liveness_an_engine_that_exits_is_reported_as_exited(run: Run) -> None:
    actor = run("sh", "-c", "while ! test -e go; do sleep 0.05; done; exit 4",
                liveness={"exec": {"command": ["true"]}, "period": 0.02})
    actor.read_report("ready")
    (actor.temp / actor.fresh_folders()[0] / "go").touch()
    assert actor.read_report("down") == "the engine exited with code 4; it wrote nothing"


def test_a_busy_engine_that_fails_its_liveness_may_end_its_requests_first(run: Run, mark: str) -> None:
    """And its first process alone is told, once."""
    command, engine = engine_like()
    actor = run(*command, readiness={"http": {"path": "/state", "port": engine.port}, "period": 0.05},
                liveness={"http": {"path": "/health", "port": engine.port}, "period": 0.05})
    actor.read_report("ready")
    with engine.working() as answer:
        engine.be(health=503)
        eventually(lambda: "signal" in actor.written(), "the engine was told")
        time.sleep(supervisor.ALONE_S + 1.0)  # longer than an engine without its actor would have
        assert answer() == (200, "done")
    assert actor.read_report("down").startswith("liveness failed 3 times in a row")
    assert [line for line in actor.written().splitlines() if "signal" in line] == [
        "front: signal 15 number 1, 1 requests running", "worker: signal 15"]
    eventually(lambda: not marked(mark), "no process is left, nor the actor's")


def test_a_default_working_directory_is_not_among_temporary_files_and_is_locked(run: Run) -> None:
    """systemd-tmpfiles takes the same lock before it removes a folder."""
    actor = run("sleep", "1000")
    actor.read_report("ready")
    [folder] = actor.fresh_folders()
    assert folder.startswith("cache/fleetctl/engines/")
    opened = os.open(actor.temp / folder, os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(opened)
    os.kill(children(actor.process.pid)[0], signal.SIGKILL)
    eventually(lambda: actor.fresh_folders() == [], "it is removed, although its actor was killed")


def test_a_missing_working_directory_fails_no_probe_and_is_made_again(run: Run, tmp_path: Path) -> None:
    runs, held = tmp_path / "runs", tmp_path / "held"
    held.touch()
    # the folder goes while a probe runs in it, never between its making and the start of a probe
    script = 'touch "$0"; while [ -e "$1" ]; do sleep 0.01; done; touch again || true'
    actor = run("sleep", "1000", readiness={"exec": {"command": ["true"]}}, liveness={
        "exec": {"command": ["sh", "-c", script, str(runs), str(held)]}, "period": 0.02, "timeout": 60,
        "failureThreshold": 1})
    pid = actor.read_report("ready")
    eventually(runs.exists, "a probe runs")
    [folder] = actor.fresh_folders()
    shutil.rmtree(actor.temp / folder)
    held.unlink()
    eventually((actor.temp / folder / "again").exists, "a probe ran there again")
    assert alive(pid)


def test_folders_of_ended_engines_are_removed_but_not_those_in_use_or_of_other_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    used, lock = guarded.make_fresh_dir()
    parent = Path(used).parent
    (parent / Path(used).name.replace(socket.gethostname(), "another-host")).mkdir()
    left = [parent / f"{guarded.FRESH}{socket.gethostname()}-{name}" for name in ("left", "new")]
    for folder in left:
        folder.mkdir()
        (folder / "core").touch()
    for folder in (*parent.iterdir(),):
        if folder != left[1]:
            os.utime(folder, (0, 0))
    os.close(guarded.make_fresh_dir()[1])
    assert [folder.exists() for folder in (*left, Path(used))] == [False, True, True]
    assert len(list(parent.glob("*another-host*"))) == 1
    os.close(lock)


def test_without_a_home_the_working_directory_is_a_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guarded.tempfile, "tempdir", str(tmp_path))
    for cache in ("/proc/no", ""):
        monkeypatch.setenv("XDG_CACHE_HOME", cache)
        monkeypatch.setattr(guarded.os.path, "expanduser", lambda path: path)
        folder, lock = guarded.make_fresh_dir()
        os.close(lock)
        assert Path(folder).parent == tmp_path


def test_a_given_working_directory_is_used_and_kept(run: Run, tmp_path: Path) -> None:
    weights = tmp_path / "weights"
    weights.mkdir()
    actor = run("sh", "-c", "pwd; touch cache", workdir=str(weights), order=ENDS)
    actor.read_report("failed")
    assert actor.written().strip() == str(weights)
    assert (weights / "cache").exists()


def test_output_written_while_both_guards_were_frozen_is_not_lost(run: Run) -> None:
    actor = run("sh", "-c", PRINTS_ON_CUE)
    actor.read_report("ready")
    [pid] = children(actor.process.pid)
    [outer] = children(pid)
    [inner] = children(outer)
    for guard in (outer, inner):
        os.kill(guard, signal.SIGSTOP)
    folder = actor.temp / actor.fresh_folders()[0]
    (folder / "cue").touch()
    eventually((folder / "printed").exists, "the engine has printed its line")
    for guard in (inner, outer):
        os.kill(guard, signal.SIGKILL)
    assert actor.read_report("down") == "the engine was ended by signal 9; last output: the last words"


@pytest.mark.parametrize("victim", ["actor", "outer", "inner"])
def test_whichever_process_is_killed_no_process_of_the_engine_is_left(
    run: Run, mark: str, victim: str, tmp_path: Path
) -> None:
    probe = {"exec": {"command": ["grep", "-q", "complete", str(tmp_path / "engine.log")]}, "period": 0.05}
    actor = run(sys.executable, "-I", "-S", "-c", FAMILY, readiness=probe)
    actor.read_report("ready")
    [pid] = children(actor.process.pid)
    [outer] = children(pid)
    [inner] = children(outer)
    os.kill({"actor": pid, "outer": outer, "inner": inner}[victim], signal.SIGKILL)
    eventually(lambda: not set(marked(mark)) - {actor.process.pid, pid}, "no process of the engine is left")
    eventually(lambda: not alive(outer) and not alive(inner), "no guard is left")
    actor.process.wait(300)
    assert actor.fresh_folders() == []


def test_an_engine_whose_actor_hangs_ends_once_rays_table_has_another_or_none(run: Run, mark: str) -> None:
    """Stopped, the actor can do nothing itself. It ends, too: until then Ray keeps its cards."""
    actor = run(sys.executable, "-I", "-S", "-c", FAMILY, order={"question": ["/bin/sh", "-c", f"exit {GONE}"]})
    pid = parent_of(parent_of(parent_of(actor.read_report("ready"))))
    eventually(lambda: len(marked(mark)) > 4, "the family is complete")
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: not marked(mark), "no process is left, nor the actor")
    assert "Ray has ended its actor, whose process hangs" in unstamped(actor.log)


@pytest.mark.parametrize("code", [0, 1, 127])
def test_an_engine_stays_whose_actor_hangs_while_rays_table_has_it_or_does_not_answer(
    run: Run, mark: str, tmp_path: Path, code: int
) -> None:
    asked = tmp_path / "asked"
    actor = run("sleep", "1000", order={"question": ["/bin/sh", "-c", f"echo >> {asked}; exit {code}"]})
    engine = actor.read_report("ready")
    pid = parent_of(parent_of(parent_of(engine)))
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: asked.exists() and asked.read_text().count("\n") > 2, "the table was asked several times")
    os.kill(pid, signal.SIGCONT)
    assert engine in marked(mark)
    os.kill(engine, signal.SIGTERM)
    assert actor.read_report("down").startswith("the engine was ended by signal 15")


def test_a_failed_start_survives_pickling() -> None:
    failure = pickle.loads(pickle.dumps(StartFailed("CARD_IN_USE", "card 0 is taken")))
    assert (failure.code, str(failure)) == ("CARD_IN_USE", "card 0 is taken")


def test_liveness_failures_do_not_count_during_a_reload_and_start_at_0_after_it() -> None:
    engine = EngineProcess.__new__(EngineProcess)
    engine.hold_liveness(1000)
    probed = list[bool]()

    class Ended:
        """An event that each probe checks first; the reload ends after 10 checks."""

        asked = 0

        def wait(self, _: float) -> bool:
            self.asked += 1
            if self.asked == 10:
                engine.hold_liveness(0)
            return self.asked > 20

        def is_set(self) -> bool:
            return False

    def check() -> str:
        probed.append(True)
        return "no answer"

    run = SimpleNamespace(ended=Ended(), exit_code=1, stop=lambda: None)
    engine.__dict__.update(_engine=Engine((), liveness=Probe()), _run=run, _build=lambda _: check,
                           _reserved=[])
    assert engine._watch_run(None) == "liveness failed 3 times in a row (no answer)"
    assert len(probed) == 3
