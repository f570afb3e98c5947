"""One engine: its start, readiness, reload, liveness and end, on ports of its own; and its log as its actor sees it."""

from __future__ import annotations

import mmap
import os
import re
import signal
import socket
import threading
import time
from contextlib import suppress
from typing import Callable, List, Mapping, Optional, Sequence, Tuple

from .cause import RECENT_S, Cause, CauseFinder, as_shown
from .guarded import GuardedProcess
from .messages import HttpCall, Member, Probe
from .node import engine_environment, expand, node_priority, refuse_too_long
from .own_files import open_own
from .ports import LOOPBACKS, Ownership, PortTaken, ports_of, taken_by
from .probes import Check, build_check, pauses
from .processes import MISSING, image_is_missing, oom_kills
from .readiness import NotReady, keep_probing
from .reload import RELOAD_ENDED, RELOAD_FAILED, ask_to_reload
from .report import StartFailed, utc_now
from .supervisor import Stamps, open_log

DEFAULT_READY_S = 5.0
CRASH_S, ENDING_S = 1.0, 15.0
"""How long an engine that crashes on a request may take to end, and one whose processes end one after another, as
vLLM's do."""
PORT_FREE_S = 10.0
"""An engine that is being ended may hold its port for its grace period and a little longer."""
OOM_TEXT = " (meanwhile the kernel killed a process of this host for lack of memory)"
LINE_PREFIX = "fleetctl: "
BANNER = LINE_PREFIX + "starting "
CAUSE, LAST_OUTPUT, LAST_OUTPUT_BYTES = "; cause: ", "; last output: ", 2_048
SHOWN_FROM = 16
"""A progress bar takes about this many times the size in a log that its last state has on a terminal."""
LINE_BYTES = 1_000
"""More than the length of the line that begins a life."""
BLOCK_BYTES, RECENT_BYTES = 64 << 10, 1 << 20
"""How much of a log is searched at a time for a cause, and how far back for that of an engine that was ready."""
SEARCHED_BYTES = 256 << 10
"""How far back to search for the error that ended the engine: its other processes write a lot at the end."""
WITH_STAMPS = 4
"""With stamps, short lines take about this many times their size in the log."""
_STAMP = re.compile(rb"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z#\d+ ", re.MULTILINE)
ADVICE = "give each engine its own port with $(FLEETCTL_PORT), or place one engine per node"


def without_output(message: str) -> str:
    """Return how an engine ended, without its last output: text that follows would be taken for a part of that."""
    return message.partition(LAST_OUTPUT)[0]


class EngineProcess:
    """The engine of a member on its node, not started yet.

    `injected` = variables that override all others. `reserved` = the sockets that reserve its ports, its own first.
    `was_ready` = it was, or the gang that it belongs to.
    """

    def __init__(
        self, member: Member, injected: Mapping[str, str], log: EngineLog,
        reserved: Sequence[socket.socket], address: str = LOOPBACKS[0],
    ) -> None:
        self._member, self._engine = member, member.engine
        self._env = engine_environment(self._engine, injected, member.cpus)
        self._argv = expand([*self._engine.command, *self._engine.args], self._env)
        refuse_too_long(self._argv, self._env)
        self._log = log
        self._reserved = list(reserved)
        self._port = int(reserved[0].getsockname()[1])
        self._address = address
        self._hosts = tuple(dict.fromkeys((*LOOPBACKS, address)))
        self._ready_port: Optional[int] = None
        self.was_ready = False
        self._held_until = 0.0
        self._run: GuardedProcess

    def start(self) -> None:
        """Start supervisor and engine. Call it from a thread that outlives the engine: an actor's main thread."""
        self._refuse_taken_ports()
        self._oom_kills_before = oom_kills()
        self._log.begin(f"{self._member.group}/{self._member.copy} rank {self._member.rank}")
        member = self._member
        with node_priority():
            self._run = GuardedProcess(
                member.supervisor, self._argv, self._env, self._engine.workdir, self._log.path, member.engine_stop)

    def _refuse_taken_ports(self) -> None:
        """Fail if another process answers on a fixed port of a probe: it would pass for the engine."""
        readiness = self._engine.readiness if self._member.rank == 0 else None
        for kind, probe in (("readiness", readiness), ("liveness", self._engine.liveness)):
            port = probe.port if probe else None
            found = taken_by(port, self._hosts, PORT_FREE_S) if port else None
            if found:
                raise StartFailed("PORT_IN_USE", f"port {port} of the {kind} probe is in use by {found}, on"
                                                 f" {self._member.node}; {ADVICE}")

    def stop(self) -> None:
        """End the engine within its grace period, and all processes below it, and wait until they are gone."""
        self._release_ports()
        self._run.stop()

    def how_it_ended(self) -> str:
        """Return how the engine ended, as text."""
        code = self._run.exit_code or 0
        if code == 0 and self.was_ready:
            return "the engine ended by itself with code 0, as if it had been asked to"
        if code <= 128:
            return f"the engine exited with code {code}"
        is_oom = code - 128 == signal.SIGKILL and oom_kills() > self._oom_kills_before
        return f"the engine was ended by signal {code - 128}" + (OOM_TEXT if is_oom else "")

    def code_of_end(self) -> str:
        """Return the code of an engine that ended before it was ready: a missing image is its node's lack, not its."""
        missing = image_is_missing(self._run.exit_code or 0, self._log.end_of_this_life(LAST_OUTPUT_BYTES))
        return MISSING if missing else "ENGINE_EXITED"

    def become_ready(self, deadline: float, allowed_s: float) -> None:
        """Return once readiness passes; raises StartFailed if the engine ends, or at `deadline` (monotonic).

        `allowed_s` = its startupTimeout, for the message.
        """
        while True:
            self._run.started.wait(max(0.0, deadline - time.monotonic()))
            if self._await_readiness(deadline, allowed_s):
                self._release_ports()
                self.was_ready = True
                probe = self._engine.readiness
                self._ready_port = probe.port_or(self._port) if probe else None
                return
            if not self._restart_without_ports():
                raise StartFailed(
                    self.code_of_end(), self._with_last_output(self.how_it_ended() + " before it was ready"))

    def _await_readiness(self, deadline: float, allowed_s: float) -> bool:
        """Return True once the engine is ready, False if it ends first; raises StartFailed at `deadline`."""
        probe = self._engine.readiness
        if not probe:
            return not self._run.ended.wait(max(0.0, min(DEFAULT_READY_S, deadline - time.monotonic())))
        check = self._build(probe)
        for pause_s in pauses(probe.period):
            try:
                problem = check()
            except PortTaken as taken:
                raise StartFailed("PORT_IN_USE", f"{taken}, on {self._member.node}; {ADVICE}") from None
            if problem is None and not self._run.ended.is_set():
                return True
            if self._run.ended.wait(min(pause_s, max(0.0, deadline - time.monotonic()))):
                return False
            if time.monotonic() >= deadline:
                late = f"not ready within its startupTimeout of {allowed_s:g} s ({problem})"
                raise StartFailed("STARTUP_TIMEOUT", self._with_last_output(late))
        raise AssertionError("pauses() never ends")

    def reload(
        self, calls: Sequence[HttpCall], variables: Mapping[str, str], deadline: float, *, to_the_end: bool = False
    ) -> None:
        """Send the requests of a reload in order, and return once the engine is ready with the weights.

        Raises StartFailed with the first failure; `to_the_end` = only after the other requests, so that an engine which
        the first one has paused does not stay so. `variables` are for the requests only; `deadline` is monotonic.
        """
        answer, failure, allowed_s = "", None, round(deadline - time.monotonic())
        for call in calls:
            try:
                answer = self._ask(call, variables, deadline)
            except StartFailed as failed:
                failure = failure or failed
                if failed.code == RELOAD_ENDED or not to_the_end:
                    break
        if failure is not None:
            if to_the_end and failure.code != RELOAD_ENDED and self._run.ended.wait(ENDING_S):
                raise StartFailed(RELOAD_ENDED, f"{failure}; then {self.how_it_ended()}")
            raise failure
        try:
            if not self._await_readiness(deadline, allowed_s):
                raise StartFailed(RELOAD_ENDED, self.how_it_ended() + " after it was asked to reload")
        except StartFailed as failed:
            code = RELOAD_ENDED if failed.code == RELOAD_ENDED else RELOAD_FAILED
            why = without_output(str(failed))  # output from before the request explains nothing
            raise StartFailed(code, f"{answer}; then {why}") from None

    def _ask(self, call: HttpCall, variables: Mapping[str, str], deadline: float) -> str:
        """Send one request and return the answer as text; raises StartFailed."""
        port = call.port or self._ready_port or self._port
        env = {**self._env, **variables}
        ours = {name: value for name, value in env.items() if name.startswith("FLEETCTL_")}
        expanded = call._replace(path=expand(call.path, ours), body=expand(call.body, env))
        objection = Ownership(port, self._run.tree).objection
        try:
            answer = ask_to_reload(expanded, port, self._hosts, deadline, objection, shown=call.path)
        except PortTaken as taken:
            raise StartFailed(RELOAD_FAILED, str(taken)) from None
        except StartFailed as failure:  # a crashing engine closes its connection before it ends
            if self._run.ended.wait(CRASH_S):
                raise StartFailed(RELOAD_ENDED, f"{failure}; then {self.how_it_ended()}") from None
            raise
        self._log.say(f"reload: {answer}")
        return answer

    def keep_probing(self, tell: Callable[[Optional[NotReady]], None]) -> None:
        """Go on with the readiness probe, if there is one, until the engine ends; see readiness.py."""
        if self._engine.readiness:
            keep_probing(self._engine.readiness, self._build, self._run.ended, tell)

    def hold_liveness(self, for_s: float) -> None:
        """Ignore liveness failures for this time, then count from zero; 0 = count again now."""
        self._held_until = time.monotonic() + for_s

    def watch(self, serving: Optional[threading.Event] = None) -> str:
        """Block until the engine has exited or failed its liveness probe, and return why.

        Liveness counts once `serving` is set; None = from the start.
        """
        while True:
            reason = self._watch_run(serving)
            if serving is None or serving.is_set() or not self._restart_without_ports():
                return self._with_last_output(reason)

    def _watch_run(self, serving: Optional[threading.Event]) -> str:
        probe = self._engine.liveness
        if not probe:
            self._run.ended.wait()
            return self.how_it_ended()
        check, failures = self._build(probe), 0
        while not self._run.ended.wait(probe.period):
            try:
                counts = (serving is None or serving.is_set()) and time.monotonic() >= self._held_until
                problem = check() if counts else None
            except PortTaken as taken:
                problem = str(taken)
            failures = failures + 1 if problem and time.monotonic() >= self._held_until else 0
            if failures >= probe.failure_threshold and not self._run.ended.is_set():
                self.stop()
                return f"liveness failed {failures} times in a row ({problem})"
        return self.how_it_ended()

    def _restart_without_ports(self) -> bool:
        """Restart an engine that could not share its ports with our sockets, now with the ports released."""
        if not self._reserved or not self._log.says_address_in_use():
            return False
        self._release_ports()
        self._log.say(f"{self.how_it_ended()}: without SO_REUSEADDR it cannot share its port with the socket that"
                      " reserves it; starting it again with the port released")
        self.start()
        return True

    def _release_ports(self) -> None:
        while self._reserved:
            self._reserved.pop().close()

    def processes(self) -> List[int]:
        """Return the processes of the engine."""
        return self._run.tree.processes()

    def served_port(self) -> int:
        """Return the port on which a ready engine serves: its own if it listens there.

        Otherwise the port of its readiness probe, or its only listening port if it has just one.
        """
        if self._ready_port == self._port:
            return self._port
        served = ports_of(self._run.tree.processes(), self._address)
        if self._port in served:
            return self._port
        return self._ready_port or (served.pop() if len(served) == 1 else self._port)

    def _build(self, probe: Probe) -> Check:
        return build_check(probe, self._hosts, self._port, self._run.tree, self._env, self._run.cwd)

    def cause(self) -> Optional[Cause]:
        """Return the error in the engine's output that explains its end, if there is one."""
        return self._log.cause(RECENT_S if self.was_ready else None)

    def _with_last_output(self, reason: str) -> str:
        cause, output = self.cause(), self._log.last_output()
        reason += f"{CAUSE}{cause.text}" if cause else ""
        return f"{reason}{LAST_OUTPUT}{output}" if output else f"{reason}; it wrote nothing"


class EngineLog:
    """The log at `path`. The guards write the engine's output to it, and rotate it when it is large."""

    def __init__(self, path: str) -> None:
        self.path = path

    def say(self, text: str) -> None:
        """Add a line of ours. Never fails, even on a full disk."""
        try:
            log = open_log(self.path)
        except OSError:
            return
        try:
            stamps = Stamps(log)
            os.write(log, stamps.put(f"{chr(10) if stamps.mid_line else ''}{LINE_PREFIX}{text}\n".encode()))
        except OSError:
            return
        finally:
            os.close(log)

    def begin(self, member: str) -> None:
        """Add the line that begins a life of the engine."""
        self.say(f"{BANNER[len(LINE_PREFIX):]}{member} at {utc_now()}")

    def end(self, reason: str) -> None:
        """Add the line that ends a life of the engine, or an attempt to start it; `fleetctl status` reads it.

        The line omits the last output, which the log has anyway.
        """
        self.say(f"ended at {utc_now()}: {without_output(reason)}")

    def end_of_this_life(self, limit: int) -> str:
        """Return at most the last `limit` bytes of the engine's output since it started."""
        read = WITH_STAMPS * limit + LINE_BYTES
        end = _tail(self.path, read)
        written = _STAMP.sub(b"", end)
        if len(written) < limit and not _begins(written):
            written = _STAMP.sub(b"", _tail(self.path + ".1", read) + end)
        return written[_begins(written):][-limit:].decode(errors="replace").strip()

    def last_output(self) -> str:
        """Return the end of the engine's output in this life as a terminal shows it, short enough for a message."""
        written = as_shown(self.end_of_this_life(SHOWN_FROM * LAST_OUTPUT_BYTES)).encode()
        return written[-LAST_OUTPUT_BYTES:].decode(errors="ignore").strip()

    def cause(self, recent_s: Optional[float] = None) -> Optional[Cause]:
        """Return the error in this life's output that explains its end; see cause.py. `recent_s` = of an engine that
        was ready: only its last output is read."""
        finder, (begin, is_in_former) = CauseFinder(), self._begin_of_life()
        files = [(self.path + ".1", begin), (self.path, 0)] if is_in_former else [(self.path, begin)]
        for path, first in files:
            with suppress(OSError), open(open_own(path, os.O_RDONLY), "rb") as log:
                log.seek(first if recent_s is None else max(first, log.seek(0, os.SEEK_END) - RECENT_BYTES))
                while not (finder.is_settled and recent_s is None):
                    block = log.read(BLOCK_BYTES) + log.readline(BLOCK_BYTES)
                    if not block:
                        break
                    finder.add(block)
        return finder.cause(recent_s)

    def _begin_of_life(self) -> Tuple[int, bool]:
        """Return where in the log this life begins, after our banner, and whether that is in the former file."""
        for path in (self.path, self.path + ".1"):
            with suppress(OSError, ValueError), open(open_own(path, os.O_RDONLY), "rb") as log, \
                    mmap.mmap(log.fileno(), 0, access=mmap.ACCESS_READ) as written:
                end = len(written)
                while (end := written.rfind(BANNER.encode(), 0, end)) >= 0:
                    line = written.rfind(b"\n", 0, end) + 1
                    if _STAMP.sub(b"", written[line:end]) == b"":
                        return written.find(b"\n", end) + 1, path != self.path
        return 0, os.path.exists(self.path + ".1")

    def says_address_in_use(self) -> bool:
        """Return whether the engine reported in this life that an address is in use."""
        text = self.end_of_this_life(SEARCHED_BYTES).lower()
        return "address already in use" in text or "eaddrinuse" in text


def _tail(path: str, limit: int) -> bytes:
    try:
        with open(open_own(path, os.O_RDONLY), "rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - limit))
            return log.read(limit)
    except OSError:
        return b""


def _begins(written: bytes) -> int:
    """Return the offset in `written` at which this life begins, after our banner; 0 if the banner is not in it."""
    at = (b"\n" + written).rfind(b"\n" + BANNER.encode())
    return written.find(b"\n", at) + 1 if at >= 0 else 0
