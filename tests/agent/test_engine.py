"""One engine as an actor runs it: environment, arguments, readiness, liveness, last words, and that nothing is left."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from left_behind import FAMILY, MARK, SPEAKS_ON_CUE, alive, children, eventually, marked

from fleetctl.agent import supervisor
from fleetctl.agent.engine import ADVICE
from fleetctl.agent.failure import StartFailed

STAND_IN = Path(__file__).with_name("actor_stand_in.py")
SOURCE = Path(supervisor.__file__).read_text(encoding="utf-8")
RAYLET = ("sh", "-c", '"$@"; exit $?', "raylet")
DUMP_ENV = (sys.executable, "-I", "-S", "-c", "import json, os; print(json.dumps(dict(os.environ)))")
INJECTED = {"CUDA_VISIBLE_DEVICES": "0,3", "FLEETCTL_RANK": "0"}


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

    def written(self) -> str:
        """Return what the engine wrote: its log without our lines."""
        text = self.log.read_text() if self.log.exists() else ""
        return "".join(line for line in text.splitlines(True) if not line.startswith("fleetctl: "))

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
        member = {"supervisor": SOURCE, "engine": {"command": list(command), **engine}, "node": "node-a",
                  "group": "main", "copy": 0, "rank": 0}
        process = subprocess.Popen([*RAYLET, sys.executable, str(STAND_IN)], env=env, text=True, start_new_session=True,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None
        with process.stdin as stdin:
            stdin.write(json.dumps({
                "member": member, "injected": INJECTED, "log": str(log), "startupTimeout": 60, "aliveFor": 1.0,
                **(order or {})}) + "\n")
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
    seen: dict[str, str] = json.loads(actor.written())
    return seen


def test_an_engine_sees_the_nodes_environment_its_own_and_what_is_injected(run: Run) -> None:
    actor = run(*DUMP_ENV, node={"HF_TOKEN": "secret", "LANG": "C.UTF-8", "MODE": "node", "RAY_TMPDIR": "/x"},
                env={"MODE": "fast", "TOKEN": {"fromNode": "HF_TOKEN"}, "EMPTY": "", "DOLLAR": "$(FLEETCTL_PORT)"})
    port, seen = actor.hear("created"), env_seen(actor)
    assert {name: seen.get(name) for name in ("HF_TOKEN", "LANG", "MODE", "TOKEN", "EMPTY", "DOLLAR")} == {
        "HF_TOKEN": "secret", "LANG": "C.UTF-8", "MODE": "fast", "TOKEN": "secret", "EMPTY": "",
        "DOLLAR": "$(FLEETCTL_PORT)",
    }
    injected = {name: value for name, value in seen.items() if name.startswith("FLEETCTL_")}
    assert injected == {"FLEETCTL_PORT": str(port), "FLEETCTL_RANK": "0",
                        "FLEETCTL_LEADER_PORT": seen["FLEETCTL_LEADER_PORT"]}
    assert not [name for name in seen if name == "PYTHONPATH" or name.startswith("RAY_")]
    assert "SET_BY_RAY" not in seen


def test_what_is_injected_beats_the_engines_own_and_that_the_nodes(run: Run) -> None:
    actor = run(*DUMP_ENV, node={"CUDA_VISIBLE_DEVICES": "5"}, env={"CUDA_VISIBLE_DEVICES": "6"})
    assert env_seen(actor)["CUDA_VISIBLE_DEVICES"] == "0,3"


@pytest.mark.parametrize(("own", "seen"), [
    ({}, "PCI_BUS_ID"), ({"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, "FASTEST_FIRST"),
])
def test_cards_are_numbered_as_the_driver_does_unless_the_engine_says_otherwise(
    run: Run, own: dict[str, str], seen: str
) -> None:
    assert env_seen(run(*DUMP_ENV, node={"CUDA_DEVICE_ORDER": "x"}, env=own))["CUDA_DEVICE_ORDER"] == seen


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
    port = actor.hear("created")
    actor.hear("failed")
    assert actor.written().splitlines() == [f"--port={port}", "fast", "$(MODE)", "$(NOBODY)", "$MODE", "a  b", "*"]


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


SERVER = """\
import http.server, os, socketserver, sys
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(204 if self.path == "/health" and os.path.exists("healthy") else 503)
        self.end_headers()
    def log_message(self, *_):
        pass
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = "--share" in sys.argv
print("loading", flush=True)
Server((sys.argv[1], int(sys.argv[2])), Health).serve_forever()
"""
"""Serves at host and port of its arguments; healthy once there is a file of that name in its folder."""


def server(host: str = "127.0.0.1", port: str = "$(FLEETCTL_PORT)", *flags: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", SERVER, host, port, *(flags or ("--share",)))


@pytest.mark.parametrize("host", ["127.0.0.1", ""])
def test_an_engine_is_ready_when_its_http_probe_passes_on_its_own_port(run: Run, host: str) -> None:
    actor = run(*server(host), readiness={"http": {"path": "/health"}, "period": 0.05})
    port = actor.hear("created")
    eventually(lambda: "loading" in actor.written(), "the engine is up")
    (actor.temp / actor.fresh_folders()[0] / "healthy").touch()
    actor.hear("ready")
    assert actor.hear("serves") == port


def test_an_engine_is_ready_when_its_tcp_probe_connects(run: Run) -> None:
    actor = run(*server(), readiness={"tcp": {}, "period": 0.05})
    actor.hear("ready")


def test_an_engine_for_ipv6_alone_is_ready_and_found(run: Run) -> None:
    serves = "import socket, sys; socket.create_server(('::1', int(sys.argv[1])), family=socket.AF_INET6).accept()"
    run(sys.executable, "-I", "-S", "-c", serves, "$(FLEETCTL_PORT)", readiness={"tcp": {}}).hear("ready")


def test_readiness_is_asked_for_quickly_at_first_whatever_the_period(run: Run) -> None:
    begun = time.monotonic()
    run(*server(), readiness={"tcp": {}, "period": 100}).hear("ready")
    assert time.monotonic() - begun < 50


@pytest.fixture
def other() -> Iterator[socket.socket]:
    """Somebody else's server: this very process listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def me() -> str:
    return f"{Path('/proc/self/comm').read_text().strip()} (process {os.getpid()})"


@pytest.mark.parametrize("kind", ["readiness", "liveness"])
def test_a_fixed_port_that_is_taken_stops_the_start(run: Run, other: socket.socket, kind: str) -> None:
    """Two replicas on one node with one port: the second was called ready by the answers of the first."""
    port = other.getsockname()[1]
    actor = run("echo", "started", **{kind: {"tcp": {"port": port}}})
    assert actor.hear("failed", "ready") == {
        "failed": "PORT_IN_USE", "message": f"port {port} of the {kind} probe is in use by {me()}, on node-a; {ADVICE}"}
    assert actor.written() == ""
    assert actor.fresh_folders() == []


def test_a_port_that_an_earlier_engine_is_about_to_leave_is_waited_for(run: Run, other: socket.socket) -> None:
    port = other.getsockname()[1]
    actor = run(*server(port=str(port)), readiness={"tcp": {"port": port}, "period": 0.05}, order={"patience": 60})
    actor.hear("created")
    other.close()
    actor.hear("ready")


def test_an_answer_by_somebody_elses_server_is_no_readiness(run: Run, free_port: int) -> None:
    """It listens when the engine has been started, as the other of two replicas that are started at once does."""
    actor = run("sh", "-c", "echo up; exec sleep 1000", readiness={"tcp": {"port": free_port}, "period": 0.05})
    eventually(lambda: "up" in actor.written(), "the engine is up")
    with socket.create_server(("127.0.0.1", free_port)):
        assert actor.hear("failed", "ready") == {
            "failed": "PORT_IN_USE", "message": f"port {free_port} is served by {me()}, which is not of this engine, on"
                                                f" node-a; {ADVICE}"}


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def test_an_engine_whose_port_somebody_else_serves_is_not_alive(run: Run, free_port: int) -> None:
    serves = ("import os, socket, sys, time; s = socket.create_server(('127.0.0.1', int(sys.argv[1])));\n"
              "while not os.path.exists('close'): time.sleep(0.02)\n"
              "s.close(); print('closed', flush=True); time.sleep(1000)")
    probe = {"tcp": {"port": free_port}, "period": 0.05}
    actor = run(sys.executable, "-I", "-S", "-c", serves, str(free_port), readiness=probe,
                liveness={**probe, "failureThreshold": 40})
    assert (actor.hear("ready") is not None, actor.hear("serves")) == (True, free_port)
    (actor.temp / actor.fresh_folders()[0] / "close").touch()
    eventually(lambda: "closed" in actor.written(), "the engine has given up its port")
    with socket.create_server(("127.0.0.1", free_port)):
        down = actor.hear("down")
    assert down.startswith("liveness failed 40 times in a row (port ")
    assert f"served by {me()}" in down


def test_an_engine_that_says_nothing_of_its_port_is_found_where_it_listens(run: Run, free_port: int) -> None:
    listens = f":{free_port:04X} 00000000:0000 0A"
    actor = run(*server(port=str(free_port)), readiness={"exec": {"command": ["grep", "-q", listens, "/proc/net/tcp"]}})
    actor.hear("ready")
    assert actor.hear("serves") == free_port


def test_an_engine_that_listens_nowhere_is_told_by_its_own_port(run: Run) -> None:
    actor = run("sleep", "1000")
    assert actor.hear("created") == actor.hear("serves")


@pytest.mark.parametrize("port", ["FLEETCTL_PORT", "FLEETCTL_LEADER_PORT"])
def test_an_engine_that_cannot_share_a_port_is_started_once_more_with_the_port_released(run: Run, port: str) -> None:
    listens = f'grep -q ":$(printf %04X "${port}") 00000000:0000 0A" /proc/net/tcp'
    actor = run(*server("0.0.0.0", f"$({port})", "--alone"), readiness={"exec": {"command": ["sh", "-c", listens]}})
    actor.hear("ready")
    log = actor.log.read_text()
    assert log.count("fleetctl: starting main/0 rank 0 at ") == 2
    assert "fleetctl: the engine exited with code 1: it cannot share its port with the socket that keeps it" in log
    assert len(actor.fresh_folders()) == 1


def test_a_rank_that_is_not_asked_for_readiness_is_started_once_more_too(run: Run) -> None:
    actor = run(*server("0.0.0.0", "$(FLEETCTL_PORT)", "--alone"), order={"probed": False})
    listens = f":{actor.hear('created'):04X} 00000000:0000 0A"
    eventually(lambda: listens in Path("/proc/net/tcp").read_text(), "it listens")
    assert actor.written().count("loading") == 2


def test_an_engine_is_started_a_second_time_but_not_a_third(run: Run) -> None:
    actor = run("sh", "-c", "echo try; echo 'bind: Address already in use'; exit 7")
    failed = actor.hear("failed")
    assert failed["failed"] == "ENGINE_EXITED"
    assert failed["message"].endswith("last words: try\nbind: Address already in use")
    assert actor.written().count("try\n") == 2


def test_an_engine_that_ends_for_another_reason_is_not_started_again(run: Run) -> None:
    actor = run("sh", "-c", "echo try; exit 7")
    actor.hear("failed")
    assert actor.written() == "try\n"


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
    assert actor.written().strip() == str(weights)
    assert (weights / "cache").exists()


def test_what_was_written_while_both_guards_stood_still_is_not_lost_with_them(run: Run) -> None:
    actor = run("sh", "-c", SPEAKS_ON_CUE)
    actor.hear("ready")
    [pid] = children(actor.process.pid)
    [outer] = children(pid)
    [inner] = children(outer)
    for guard in (outer, inner):
        os.kill(guard, signal.SIGSTOP)
    folder = actor.temp / actor.fresh_folders()[0]
    (folder / "cue").touch()
    eventually((folder / "said").exists, "the engine has spoken")
    for guard in (inner, outer):
        os.kill(guard, signal.SIGKILL)
    assert actor.hear("down") == "the engine was ended by signal 9; last words: the last words"


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


def test_a_failed_start_survives_pickling() -> None:
    failure = pickle.loads(pickle.dumps(StartFailed("CARD_IN_USE", "card 0 is taken")))
    assert (failure.code, str(failure)) == ("CARD_IN_USE", "card 0 is taken")
