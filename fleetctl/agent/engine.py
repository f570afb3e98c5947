"""One engine: its start, readiness, liveness and end, on ports of its own."""

from __future__ import annotations

import signal
import socket
import threading
import time
from typing import Any, Mapping, Optional, Sequence

from .engine_log import LAST_OUTPUT, EngineLog
from .environment import engine_environment, expand
from .failure import StartFailed
from .guarded import GuardedProcess
from .holders import ports_of
from .ownership import Ownership, PortTaken
from .ports import LOOPBACKS, probe_port, taken_by
from .probes import Check, build_check, pauses
from .processes import oom_kills
from .reload_call import RELOAD_ENDED, RELOAD_FAILED, ask_to_reload

DEFAULT_READY_S = 5.0
CRASH_S = 1.0
PORT_FREE_S = 10.0
"""An engine that is being ended may hold its port for its grace period and a little longer."""
OOM_TEXT = " (meanwhile the kernel killed a process of this host for lack of memory)"
ADVICE = "give each engine its own port with $(FLEETCTL_PORT), or place one engine per node"


class EngineProcess:
    """An engine on its node, not started yet. `member` is a member of the plan with its engine.

    `injected` = variables that override all others. `reserved` = the sockets that reserve its ports, its own first.
    """

    def __init__(
        self, member: Mapping[str, Any], injected: Mapping[str, str], log: EngineLog,
        reserved: Sequence[socket.socket], address: str = LOOPBACKS[0],
    ) -> None:
        spec = member["engine"]
        self._member = member
        self._spec = spec
        self._env = engine_environment(spec, injected)
        self._argv = expand([*spec["command"], *spec.get("args", [])], self._env)
        self._log = log
        self._reserved = list(reserved)
        self._port = int(reserved[0].getsockname()[1])
        self._address = address
        self._hosts = tuple(dict.fromkeys((*LOOPBACKS, address)))
        self._ready_port: Optional[int] = None
        self._held_until = 0.0
        self._run: GuardedProcess

    def start(self) -> None:
        """Start supervisor and engine. Call it from a thread that outlives the engine: an actor's main thread."""
        self._refuse_taken_ports()
        self._oom_kills_before = oom_kills()
        self._log.begin(f"{self._member['group']}/{self._member['copy']} rank {self._member['rank']}")
        self._run = GuardedProcess(
            self._member["supervisor"], self._argv, self._env, self._spec.get("workdir"), self._log.path)

    def _refuse_taken_ports(self) -> None:
        """Fail if another process answers on a fixed port of a probe: it would pass for the engine."""
        is_probed = int(self._member["rank"]) == 0
        for kind in ("readiness", "liveness") if is_probed else ("liveness",):
            port = probe_port(self._spec.get(kind) or {})
            found = taken_by(port, self._hosts, PORT_FREE_S) if port else None
            if found:
                raise StartFailed("PORT_IN_USE", f"port {port} of the {kind} probe is in use by {found}, on"
                                                 f" {self._member['node']}; {ADVICE}")

    def stop(self) -> None:
        """End the engine and all processes below it, and wait until they are gone."""
        self._release_ports()
        self._run.stop()

    def how_it_ended(self) -> str:
        """Return how the engine ended, as text."""
        code = self._run.exit_code or 0
        if code <= 128:
            return f"the engine exited with code {code}"
        is_oom = code - 128 == signal.SIGKILL and oom_kills() > self._oom_kills_before
        return f"the engine was ended by signal {code - 128}" + (OOM_TEXT if is_oom else "")

    def become_ready(self, deadline: float, allowed_s: float) -> None:
        """Return once readiness passes; raises StartFailed if the engine ends, or at `deadline` (monotonic).

        `allowed_s` = its startupTimeout, for the message.
        """
        while True:
            self._run.started.wait(max(0.0, deadline - time.monotonic()))
            if self._await_readiness(deadline, allowed_s):
                self._release_ports()
                probe = self._spec.get("readiness") or {"exec": {}}
                self._ready_port = None if "exec" in probe else probe_port(probe) or self._port
                return
            if not self._restart_without_ports():
                raise StartFailed("ENGINE_EXITED", self._with_last_output(self.how_it_ended() + " before it was ready"))

    def _await_readiness(self, deadline: float, allowed_s: float) -> bool:
        """Return True once the engine is ready, False if it ends first; raises StartFailed at `deadline`."""
        probe = self._spec.get("readiness")
        if not probe:
            return not self._run.ended.wait(max(0.0, min(DEFAULT_READY_S, deadline - time.monotonic())))
        check = self._build(probe)
        for pause_s in pauses(float(probe.get("period", 1))):
            try:
                problem = check()
            except PortTaken as taken:
                raise StartFailed("PORT_IN_USE", f"{taken}, on {self._member['node']}; {ADVICE}") from None
            if problem is None and not self._run.ended.is_set():
                return True
            if self._run.ended.wait(min(pause_s, max(0.0, deadline - time.monotonic()))):
                return False
            if time.monotonic() >= deadline:
                late = f"not ready within its startupTimeout of {allowed_s:g} s ({problem})"
                raise StartFailed("STARTUP_TIMEOUT", self._with_last_output(late))
        raise AssertionError("pauses() never ends")

    def reload(self, request: Mapping[str, Any], variables: Mapping[str, str], deadline: float) -> None:
        """Send the reload request and return once the engine is ready with the new weights; raises StartFailed.

        `variables` are for the request only; `deadline` is monotonic.
        """
        port = int(request.get("port") or self._ready_port or self._port)
        env, allowed_s = {**self._env, **variables}, round(deadline - time.monotonic())
        ours = {name: value for name, value in env.items() if name.startswith("FLEETCTL_")}
        expanded = {**request, "shown": request["path"], "path": expand(request["path"], ours),
                    "body": expand(request.get("body"), env)}
        try:
            answer = ask_to_reload(expanded, port, self._hosts, deadline, Ownership(port, self._run.tree).objection)
        except PortTaken as taken:
            raise StartFailed(RELOAD_FAILED, str(taken)) from None
        except StartFailed as failure:  # a crashing engine closes its connection before it ends
            if self._run.ended.wait(CRASH_S):
                raise StartFailed(RELOAD_ENDED, f"{failure}; then {self.how_it_ended()}") from None
            raise
        self._log.say(f"reload: {answer}")
        try:
            if not self._await_readiness(deadline, allowed_s):
                raise StartFailed(RELOAD_ENDED, self.how_it_ended() + " after it was asked to reload")
        except StartFailed as failure:
            code = RELOAD_ENDED if failure.code == RELOAD_ENDED else RELOAD_FAILED
            why = str(failure).partition(LAST_OUTPUT)[0]  # output from before the request explains nothing
            raise StartFailed(code, f"{answer}; then {why}") from None

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
        probe = self._spec.get("liveness")
        if not probe:
            self._run.ended.wait()
            return self.how_it_ended()
        check, failures = self._build(probe), 0
        while not self._run.ended.wait(float(probe.get("period", 1))):
            try:
                counts = (serving is None or serving.is_set()) and time.monotonic() >= self._held_until
                problem = check() if counts else None
            except PortTaken as taken:
                problem = str(taken)
            failures = failures + 1 if problem and time.monotonic() >= self._held_until else 0
            if failures >= int(probe.get("failureThreshold", 3)) and not self._run.ended.is_set():
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

    def _build(self, probe: Mapping[str, Any]) -> Check:
        return build_check(probe, self._hosts, self._port, self._run.tree, self._env, self._run.cwd)

    def _with_last_output(self, reason: str) -> str:
        output = self._log.last_output()
        return f"{reason}{LAST_OUTPUT}{output}" if output else f"{reason}; it wrote nothing"
