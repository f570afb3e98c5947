"""One member on its node: takes ports and cards, then runs its engine. A gang has several."""

from __future__ import annotations

import time
from typing import Callable, List, Mapping, Optional, Sequence

import ray

from . import node
from .caches.door import MemberCaches
from .caches.offers import Offer
from .cards import card_numbers, card_uuids, names_for_engine, wait_for_clean_cards
from .cause import Cause
from .engine import EngineLog, EngineProcess
from .messages import GotCaches, HttpCall, Lifecycle, Member, Place, PlannedWeights, ServedWeights
from .model_files import MODEL_DIR, NEW_MODEL_DIR, ModelFiles
from .node import node_environment
from .ports import port_variable, reserve_port
from .readiness import NotReady
from .report import StartFailed, place_of


class MemberSeat:
    """A member that has its node, ports and cards, and no engine yet."""

    def __init__(self, member: Member, restarted: bool = False) -> None:
        node.share_memory_standing()
        self.member = member
        self._log = log_of(member)
        self._weights: Optional[ModelFiles] = None
        self._served: Optional[ModelFiles] = None
        self._new: Optional[ModelFiles] = None
        self._caches: Optional[MemberCaches] = None
        self._engine: Optional[EngineProcess] = None
        self.ip: str = ray.util.get_node_ip_address()
        own = 2 if member.rank == 0 else 1
        self._reserved = [reserve_port() for _ in range(own + len(member.engine.ports))]
        numbers = [int(port.getsockname()[1]) for port in self._reserved]
        self.port, self.leader_port = [*numbers[:own], 0][:2]
        self._named_ports = {port_variable(name): str(port) for name, port in zip(member.engine.ports, numbers[own:])}
        self._granted = node.granted_cards()
        self._cards = check = wait_for_clean_cards(
            self._granted, member.gpus, member.vram, node_environment(), cooling=member.cooling_cards,
            residents=member.residents, restarted=restarted)
        if check.objection:
            raise StartFailed(check.code, f"{check.objection} (node {member.node})", [self._failed_card()]
                              if check.failed else ())

    def place(self) -> Place:
        """Return this member's place for the replica's repr; its `unchecked` says why its cards were not checked."""
        return place_of(self.member)._replace(
            node_id=ray.get_runtime_context().get_node_id(), ip=self.ip, port=self.port,
            gpu_indices=card_numbers(self._granted, self._cards), gpu_uuids=card_uuids(self._cards),
            unchecked=self._cards.unchecked)

    def _failed_card(self) -> Place:
        """Return this member's place with only the card that has failed, for plans that must not use it."""
        failed = self._cards.failed
        return place_of(self.member)._replace(
            node_id=ray.get_runtime_context().get_node_id(),
            gpu_indices=[int(card) for card in failed if card.isdigit()],
            gpu_uuids=[card for card in failed if card and not card.isdigit()])

    def fetch_files(self, injected: Mapping[str, str], fleet: str, within_s: float) -> None:
        """Return once the member's weights are on this node, and its caches as far as there are any.

        Raises StartFailed, for weights alone. Other members can fetch both from here while our engine is starting.
        """
        self._injected, deadline = injected, time.monotonic() + within_s
        if self.member.weights:
            self._weights = ModelFiles(self.member, injected, deadline, self._log.say)
            self._serve(self._weights)
        if self.member.engine.caches:
            known = {**injected, **self._named_ports, **({MODEL_DIR: self._weights.folder} if self._weights else {})}
            self._caches = MemberCaches(self.member, known, fleet, self._cards, deadline, self._log.say)
            self._caches.serve(self.ip)

    def served_weights(self) -> Optional[ServedWeights]:
        """Return the weights that the place of a ready member names."""
        return self._served.served if self._served else None

    def got_caches(self) -> Optional[GotCaches]:
        """Return what the place of a ready member says of its caches."""
        return self._caches.got if self._caches else None

    def offers(self) -> List[Offer]:
        """Return the caches that other members may fetch from here."""
        return self._caches.offers() if self._caches else []

    def keep_files(self) -> None:
        """Check the weights and offer the caches from now on, in the background: the engine or its gang is ready."""
        if self._weights:
            self._weights.check()
        if self._caches and self._engine:
            self._caches.watch(self._engine.processes)

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
        assert self._engine is not None
        self._engine.hold_liveness(for_s)

    def is_serving(self) -> None:
        """Record that the engine, or the whole gang, was ready: earlier errors in its output do not explain its end."""
        assert self._engine is not None
        self._engine.was_ready = True

    def cause(self) -> Optional[Cause]:
        """Return the error in the engine's output that explains its end, if there is one."""
        return self._engine.cause() if self._engine else None

    def keep_probing(self, tell: Callable[[Optional[NotReady]], None]) -> None:
        """Go on with the engine's readiness probe: it, or the whole gang, is ready."""
        assert self._engine is not None
        self._engine.keep_probing(tell)

    def reload_engine(self, calls: Sequence[HttpCall], within_s: float) -> None:
        """Return once the engine has loaded the new weights and is ready; raises StartFailed."""
        assert self._new is not None
        assert self._engine is not None
        self._engine.reload(calls, {NEW_MODEL_DIR: self._new.folder}, time.monotonic() + within_s)

    def roll_back_engine(self, calls: Sequence[HttpCall], within_s: float) -> None:
        """Return once the engine has loaded its current weights again, after a reload that failed; raises StartFailed.

        All requests are sent, whatever the answers.
        """
        assert self._served is not None
        assert self._engine is not None
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
        if self._caches:  # they are of a key with the former weights
            self._caches.close()
        self._serve(new)
        new.check()
        return new.served

    def start_engine(self, injected: Mapping[str, str]) -> EngineProcess:
        """Start the engine. Call it from a thread that outlives the engine: the actor's main thread."""
        granted = names_for_engine(self._granted, self._cards)
        variables = {**injected, **self._named_ports, **node.other_accelerators(),
                     **node.visible_devices(granted, node_environment()),
                     **({MODEL_DIR: self._weights.folder} if self._weights else {}),
                     **(self._caches.variables if self._caches else {})}
        engine = EngineProcess(self.member, variables, self._log, self._reserved, self.ip)
        engine.start()
        self._engine = engine
        return engine

    def end_engine(self) -> None:
        """End the engine, if it was started, and wait until its processes are gone and its cards' memory is free."""
        if self._engine is None:
            return
        if self._served:
            self._served.drain()
        if self._caches:
            self._caches.close()
        self._engine.stop()
        wait_for_clean_cards(self._granted, self.member.gpus, self.member.vram, node_environment(),
                                   residents=self.member.residents, restarted=True, stable=True)


def log_of(member: Member) -> EngineLog:
    """Return the log of a member's engine."""
    return EngineLog(node.log_path(member.log))


def deadline_after(lifecycle: Lifecycle) -> float:
    """Return the monotonic time by which an engine that starts now must be ready."""
    return time.monotonic() + lifecycle.startup_timeout
