"""One engine as an actor runs it: environment, arguments, readiness, liveness, last words, and that nothing is left."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from left_behind import FAMILY, MARK, alive, children, eventually, marked

from fleetctl.agent import supervisor
from fleetctl.agent.engine import StartFailed, reserve_port

STAND_IN = Path(__file__).with_name("actor_stand_in.py")
SOURCE = Path(supervisor.__file__).read_text(encoding="utf-8")
RAYLET = ("sh", "-c", '"$@"; exit $?', "raylet")
DUMP_ENV = (sys.executable, "-I", "-S", "-c", "import json, os; print(json.dumps(dict(os.environ)))")
INJECTED = {"FLEETCTL_PORT": "7001", "FLEETCTL_RANK": "0"}


class Actor:
    """A running stand-in: `hear` returns what it says next."""

    def __init__(self, process: subprocess.Popen[str], log: Path, temp: Path) -> None:
        self.process = process
        self.log = log
        self.temp = temp

    def hear(self, *kinds: str) -> Any:
        """Return what the next line of one of `kinds` says; lines of other kinds are passed over."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said = json.loads(line)
            if set(kinds) & set(said):
                return said if len(said) > 1 else next(iter(said.values()))
        raise AssertionError(f"the stand-in ended without {kinds}")

    def fresh_folders(self) -> list[str]:
        """Return the working directories that were made for engines and still exist."""
        return sorted(path.name for path in self.temp.glob("fleetctl-engine-*"))


Run = Callable[..., Actor]


@pytest.fixture
def run(tmp_path: Path, mark: str) -> Iterator[Run]:
    """Start an actor stand-in whose engine is `command`; keywords are keys of the engine, `order` is the rest."""
    started: list[Actor] = []
    temp = tmp_path / "temp"
    temp.mkdir()

    def running(*command: str, node: dict[str, str] | None = None, order: dict[str, Any] | None = None,
                **engine: Any) -> Actor:
        env = {"PATH": os.environ["PATH"], "TMPDIR": str(temp), "PYTHONPATH": os.pathsep.join(sys.path),
               "RAY_ADDRESS": "10.0.0.1:6379", "FLEETCTL_FLEET": "another", MARK: mark, **(node or {})}
        log = tmp_path / "engine.log"
        member = {"supervisor": SOURCE, "engine": {"command": list(command), **engine}}
        process = subprocess.Popen([*RAYLET, sys.executable, str(STAND_IN)], env=env, text=True, start_new_session=True,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None
        with process.stdin as stdin:
            stdin.write(json.dumps({
                "member": member, "injected": INJECTED, "visible": "", "log": str(log), "port": 0,
                "startupTimeout": 60, "aliveFor": 1.0, **(order or {})}) + "\n")
        started.append(Actor(process, log, temp))
        return started[-1]

    yield running
    for actor in started:
        for pid in [*children(actor.process.pid), actor.process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        actor.process.wait(30)
        assert actor.process.stdout is not None
        actor.process.stdout.close()


def env_seen(actor: Actor) -> dict[str, str]:
    actor.hear("failed", "down")
    seen: dict[str, str] = json.loads(actor.log.read_text())
    return seen


def test_an_engine_sees_the_nodes_environment_its_own_and_what_is_injected(run: Run) -> None:
    actor = run(*DUMP_ENV, node={"HF_TOKEN": "secret", "LANG": "C.UTF-8", "MODE": "node", "RAY_TMPDIR": "/x"},
                env={"MODE": "fast", "TOKEN": {"fromNode": "HF_TOKEN"}, "EMPTY": "", "DOLLAR": "$(FLEETCTL_PORT)"})
    seen = env_seen(actor)
    assert {name: seen.get(name) for name in ("HF_TOKEN", "LANG", "MODE", "TOKEN", "EMPTY", "DOLLAR")} == {
        "HF_TOKEN": "secret", "LANG": "C.UTF-8", "MODE": "fast", "TOKEN": "secret", "EMPTY": "",
        "DOLLAR": "$(FLEETCTL_PORT)",
    }
    assert {name: value for name, value in seen.items() if name.startswith("FLEETCTL_") and name != MARK} == INJECTED
    assert not [name for name in seen if name == "PYTHONPATH" or name.startswith("RAY_")]
    assert "SET_BY_RAY" not in seen


@pytest.mark.parametrize("visible", ["", "0,3", "GPU-1234"])
def test_the_cards_are_always_said_even_when_there_are_none(run: Run, visible: str) -> None:
    actor = run(*DUMP_ENV, node={"CUDA_VISIBLE_DEVICES": "5"}, env={"CUDA_VISIBLE_DEVICES": "6"},
                order={"visible": visible})
    assert env_seen(actor)["CUDA_VISIBLE_DEVICES"] == visible


def test_a_variable_the_node_does_not_have_stops_the_start(run: Run) -> None:
    actor = run("sleep", "1000", env={"HF_TOKEN": {"fromNode": "HF_TOKEN_FILE"}})
    assert actor.hear("failed") == {
        "failed": "ENV_MISSING", "message": "HF_TOKEN: the node has no variable HF_TOKEN_FILE"}
    assert actor.fresh_folders() == []


def test_what_ray_sets_for_its_workers_is_no_variable_of_the_node(run: Run) -> None:
    actor = run("true", env={"X": {"fromNode": "SET_BY_RAY"}})
    assert actor.hear("failed")["failed"] == "ENV_MISSING"


def test_references_in_command_and_args_are_expanded_and_all_else_is_verbatim(run: Run) -> None:
    actor = run("printf", "%s\n", "--port=$(FLEETCTL_PORT)", env={"MODE": "fast"},
                args=["$(MODE)", "$$(MODE)", "$(NOBODY)", "$MODE", "a  b", "*"])
    actor.hear("failed")
    assert actor.log.read_text().splitlines() == ["--port=7001", "fast", "$(MODE)", "$(NOBODY)", "$MODE", "a  b", "*"]


def test_an_unknown_reference_of_ours_stops_the_start(run: Run) -> None:
    actor = run("sleep", "1000", args=["$(FLEETCTL_PROT)"])
    assert actor.hear("failed") == {
        "failed": "UNRESOLVED_VARIABLE", "message": "$(FLEETCTL_PROT) is not a variable of fleetctl"}
    assert actor.fresh_folders() == [], "nothing is left of a start that never was"


def test_without_a_probe_ready_means_alive_for_a_while(run: Run, mark: str) -> None:
    actor = run("sleep", "1000")
    pid = actor.hear("ready")
    assert pid in marked(mark)


def test_without_a_probe_an_engine_that_ends_at_once_is_not_ready(run: Run) -> None:
    actor = run("sh", "-c", "echo no weights; exit 3", order={"aliveFor": 30})
    assert actor.hear("failed", "ready") == {
        "failed": "ENGINE_EXITED",
        "message": "the engine exited with code 3 before it was ready; last words: no weights"}


@pytest.mark.parametrize(("command", "message"), [
    ("kill -9 $$$$", "the engine was ended by signal 9 before it was ready; it wrote nothing"),
    ("exit 0", "the engine exited with code 0 before it was ready; it wrote nothing"),
])
def test_how_an_engine_ended_is_told(run: Run, command: str, message: str) -> None:
    actor = run("sh", "-c", command, readiness={"exec": {"command": ["false"]}, "period": 0.05})
    assert actor.hear("failed") == {"failed": "ENGINE_EXITED", "message": message}


def test_last_words_are_the_end_of_this_life_only(run: Run, tmp_path: Path) -> None:
    (tmp_path / "engine.log").write_text("words of an earlier life\n")
    actor = run("sh", "-c", "printf 'x%.0s' $(seq 5000); printf '\\377 the end'; exit 1", order={"aliveFor": 30})
    message = actor.hear("failed")["message"]
    assert message.endswith("x\N{REPLACEMENT CHARACTER} the end")
    assert "earlier" not in message
    assert len(message) < 2_200


class Health(BaseHTTPRequestHandler):
    healthy = threading.Event()

    def do_GET(self) -> None:
        self.send_response(204 if self.healthy.is_set() and self.path == "/health" else 503)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def health() -> Iterator[ThreadingHTTPServer]:
    """A server whose /health is 503 until `Health.healthy` is set."""
    Health.healthy.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Health)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_an_engine_is_ready_when_its_http_probe_passes_on_its_own_port(run: Run, health: ThreadingHTTPServer) -> None:
    actor = run("sleep", "1000", readiness={"http": {"path": "/health"}, "period": 0.05},
                order={"port": health.server_address[1]})
    actor.hear("created")
    Health.healthy.set()
    actor.hear("ready")


def test_an_engine_is_ready_when_its_tcp_probe_connects(run: Run, health: ThreadingHTTPServer) -> None:
    actor = run("sleep", "1000", readiness={"tcp": {"port": health.server_address[1]}, "period": 0.05})
    actor.hear("ready")


def test_an_exec_probe_runs_where_and_as_the_engine_does(run: Run) -> None:
    """In its working directory, with its environment, with references expanded."""
    probe = 'test "$(cat "$1")" = up && test "$MODE" = fast'
    actor = run("sh", "-c", 'printf up > "port-$FLEETCTL_PORT"; exec sleep 1000', env={"MODE": "fast"},
                readiness={"exec": {"command": ["sh", "-c", probe, "sh", "port-$(FLEETCTL_PORT)"]}, "period": 0.05})
    actor.hear("ready")
    assert len(actor.fresh_folders()) == 1


def test_an_engine_that_does_not_become_ready_in_time_is_ended_and_its_words_are_kept(run: Run, mark: str) -> None:
    actor = run(sys.executable, "-I", "-S", "-c", FAMILY, readiness={"exec": {"command": ["false"]}, "period": 0.05},
                order={"startupTimeout": 2})
    failed = actor.hear("failed")
    assert failed["failed"] == "STARTUP_TIMEOUT"
    assert failed["message"] == "not ready in time (false: exit code 1); last words: family complete"
    eventually(lambda: not marked(mark), "the whole family is gone")
    assert actor.fresh_folders() == []


def test_an_engine_is_watched_until_it_ends(run: Run) -> None:
    actor = run("sh", "-c", "while ! test -e go; do sleep 0.05; done; echo out of memory; exit 9")
    actor.hear("ready")
    (actor.temp / actor.fresh_folders()[0] / "go").touch()
    assert actor.hear("down") == "the engine exited with code 9; last words: out of memory"
    assert actor.fresh_folders() == []


def test_an_engine_is_down_when_liveness_fails_so_many_times_in_a_row(run: Run, mark: str, tmp_path: Path) -> None:
    """The probe's own count shows that one good answer in between starts the count anew."""
    tries = tmp_path / "tries"
    probe = f'echo >> {tries}; n=$(wc -l < {tries}); test "$n" = 3'
    actor = run("sleep", "1000",
                liveness={"exec": {"command": ["sh", "-c", probe]}, "period": 0.02, "failureThreshold": 3})
    assert actor.hear("down") == "liveness failed 3 times in a row (sh: exit code 1); it wrote nothing"
    assert tries.read_text().count("\n") == 6
    eventually(lambda: not marked(mark), "the engine was ended")


def test_with_liveness_an_engine_that_ends_by_itself_is_told_as_such(run: Run) -> None:
    actor = run("sh", "-c", "sleep 3; exit 4", liveness={"exec": {"command": ["true"]}, "period": 0.02})
    assert actor.hear("down") == "the engine exited with code 4; it wrote nothing"


def test_a_working_directory_of_ones_own_is_used_and_kept(run: Run, tmp_path: Path) -> None:
    weights = tmp_path / "weights"
    weights.mkdir()
    actor = run("sh", "-c", "pwd; touch cache", workdir=str(weights))
    actor.hear("failed")
    assert actor.log.read_text().strip() == str(weights)
    assert (weights / "cache").exists()


@pytest.mark.parametrize("victim", ["actor", "outer", "inner"])
def test_whoever_is_killed_nothing_of_the_engine_is_left(
    run: Run, mark: str, victim: str, tmp_path: Path
) -> None:
    said = {"exec": {"command": ["grep", "-q", "complete", str(tmp_path / "engine.log")]}, "period": 0.05}
    actor = run(sys.executable, "-I", "-S", "-c", FAMILY, readiness=said)
    actor.hear("ready")
    [pid] = children(actor.process.pid)
    [outer] = children(pid)
    [inner] = children(outer)
    os.kill({"actor": pid, "outer": outer, "inner": inner}[victim], signal.SIGKILL)
    eventually(lambda: not set(marked(mark)) - {actor.process.pid, pid}, "no process of the engine is left")
    eventually(lambda: not alive(outer) and not alive(inner), "no guard is left")
    actor.process.wait(30)
    assert actor.fresh_folders() == []


def test_ports_that_are_reserved_at_once_differ() -> None:
    holders = [reserve_port() for _ in range(20)]
    try:
        assert len({holder.getsockname()[1] for holder in holders}) == 20
    finally:
        for holder in holders:
            holder.close()


def test_a_failed_start_survives_pickling() -> None:
    failure = pickle.loads(pickle.dumps(StartFailed("CARD_IN_USE", "card 0 is taken")))
    assert (failure.code, str(failure)) == ("CARD_IN_USE", "card 0 is taken")
