"""One member on its node: takes ports and cards, then runs its engine. A gang has several."""

from __future__ import annotations

import time
from typing import Mapping, Optional, Sequence

import ray

from . import cards, node
from .engine import EngineLog, EngineProcess
from .failure import StartFailed
from .mark import place_of
from .messages import HttpCall, Lifecycle, Member, Place, PlannedWeights, ServedWeights
from .model_files import MODEL_DIR, NEW_MODEL_DIR, ModelFiles
from .node import node_environment
from .ports import reserve_port


class MemberSeat:
    """A member that has its node, ports and cards, and no engine yet."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self._log = log_of(member)
        self._weights: Optional[ModelFiles] = None
        self._served: Optional[ModelFiles] = None
        self._new: Optional[ModelFiles] = None
        self.ip: str = ray.util.get_node_ip_address()
        self._reserved = [reserve_port() for _ in range(2 if member.rank == 0 else 1)]
        self.port, self.leader_port = [*(int(port.getsockname()[1]) for port in self._reserved), 0][:2]
        self._granted = node.granted_cards()
        self._cards = cards.wait_for_clean_cards(
            self._granted, member.gpus, member.vram, node_environment(), cooling=member.cooling_cards)
        if self._cards.objection:
            raise StartFailed(self._cards.code, f"{self._cards.objection} (node {member.node})")

    def place(self) -> Place:
        """Return this member's place for the replica's repr; its `unchecked` says why its cards were not checked."""
        return place_of(self.member)._replace(
            node_id=ray.get_runtime_context().get_node_id(), ip=self.ip, port=self.port,
            gpu_indices=cards.numbers(self._granted, self._cards), gpu_uuids=cards.uuids(self._cards),
            unchecked=self._cards.unchecked)

    def fetch_weights(self, injected: Mapping[str, str], within_s: float) -> None:
        """Return once the member's weights, if it has any, are on this node; raises StartFailed.

        Other members can fetch them from here while our engine is still starting.
        """
        self._injected = injected
        if self.member.weights:
            self._weights = ModelFiles(self.member, injected, time.monotonic() + within_s, self._log.say)
            self._serve(self._weights)

    def served_weights(self) -> Optional[ServedWeights]:
        """Return the weights that the place of a ready member names."""
        return self._served.served if self._served else None

    def check_weights(self) -> None:
        """Check the weights in the background from now on: the engine, or the whole gang, is ready."""
        if self._weights:
            self._weights.check()

    def _serve(self, weights: ModelFiles) -> None:
        """Serve these weights from now on instead of the former ones."""
        former, self._served = self._served, weights
        try:
            weights.serve(self.ip, former)
        except Exception as error:  # a replica must not end because others cannot fetch from it
            self._log.say(f"weights: not served to others: {error.__class__.__name__}: {error}")
        finally:
            if former and former is not self._weights:  # the engine's FLEETCTL_MODEL_DIR still names the first ones
                former.release()

    def fetch_new(self, weights: PlannedWeights, within_s: float) -> None:
        """Return once the new weights are on this node, beside the engine's current ones; raises StartFailed."""
        self._new = ModelFiles(self.member._replace(weights=weights), self._injected, time.monotonic() + within_s,
                               self._log.say)

    def hold_liveness(self, for_s: float) -> None:
        """Ignore the engine's liveness for this time, while it may be busy."""
        self._engine.hold_liveness(for_s)

    def reload_engine(self, calls: Sequence[HttpCall], within_s: float) -> None:
        """Return once the engine has loaded the new weights and is ready; raises StartFailed."""
        assert self._new is not None
        self._engine.reload(calls, {NEW_MODEL_DIR: self._new.folder}, time.monotonic() + within_s)

    def roll_back_engine(self, calls: Sequence[HttpCall], within_s: float) -> None:
        """Return once the engine has loaded its current weights again, after a reload that failed; raises StartFailed.

        All requests are sent, whatever the answers.
        """
        assert self._served is not None
        deadline = time.monotonic() + within_s
        self._engine.reload(calls, {NEW_MODEL_DIR: self._served.folder}, deadline, to_the_end=True)

    def drop_new(self) -> None:
        """Release the new weights, so that other processes may remove them: the engine keeps its current ones."""
        if self._new is not None:
            self._new.release()
            self._new = None

    def serve_new(self) -> Optional[ServedWeights]:
        """Serve the new weights instead of the former ones, and return what the member's place names."""
        assert self._new is not None
        new, self._new = self._new, None
        self._serve(new)
        new.check()
        return new.served

    def start_engine(self, injected: Mapping[str, str]) -> EngineProcess:
        """Start the engine. Call it from a thread that outlives the engine: the actor's main thread."""
        variables = {**injected, **node.other_accelerators(), **node.visible_devices(self._granted, node_environment()),
                     **({MODEL_DIR: self._weights.folder} if self._weights else {})}
        engine = EngineProcess(self.member, variables, self._log, self._reserved, self.ip)
        engine.start()
        self._engine = engine
        return engine

    def end_engine(self, engine: EngineProcess) -> None:
        """End the engine, and wait until its processes are gone and its cards have freed their memory."""
        if self._served:
            self._served.drain()
        engine.stop()
        cards.wait_for_clean_cards(self._granted, self.member.gpus, self.member.vram, node_environment(), stable=True)


def log_of(member: Member) -> EngineLog:
    """Return the log of a member's engine."""
    return EngineLog(node.log_path(member.log))


def deadline_after(lifecycle: Lifecycle) -> float:
    """Return the monotonic time by which an engine that starts now must be ready."""
    return time.monotonic() + lifecycle.startup_timeout
