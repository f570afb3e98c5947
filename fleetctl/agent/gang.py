"""A replica of several members: a coordinator without resources, and one actor per member in its placement group.

The coordinator is the named, detached actor. It owns the placement group and the members, so they die with it and Ray
restarts the gang as a whole. No engine starts before all members are placed.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from .caches.offers import Offer
from .cards import REFUSED
from .cause import RAISED, Cause, first_of
from .cluster import alive_nodes, bundle_for, format_claim, member_options, shortfalls
from .engine import CAUSE, LAST_OUTPUT, EngineProcess
from .member import MemberSeat, deadline_after, log_of
from .messages import FailedStart, GotCaches, Lifecycle, Member, Place, ServedWeights
from .readiness import NotReady
from .replica import ReplicaActor
from .report import (
    CARD_FAILURES,
    LEAVE_S,
    StartFailed,
    about,
    actor_name,
    decode_failure,
    encode_failure,
    injected_variables,
    keep_failure,
    place_of,
    start_failure,
)

POLL_S = 0.5
GIVE_BACK_S = 30.0
NODE_CHECK_S = 5.0
"""Interval at which a group that waits for its grant checks for dead nodes."""
GRANT_S = 300.0
"""How long Ray may take to grant a group that it has room for."""
ANSWER_S = 120.0
"""A member answers immediately, but first its worker must start and its cards must be clean."""
MARGIN_S = 60.0
OFFERS_S = 3.0
CAUSED, CAUSE_S = frozenset({"ENGINE_EXITED", "STARTUP_TIMEOUT"}), 10.0
"""Failures of a member that another one's may have caused, and how long members search their output for that."""
LEAVING_S = 20.0
"""How much longer than the grace period the members may take to end their engines and to free their cards."""


class OutOfReach(StartFailed):
    """A member's process cannot be reached; only Ray knows whether it has died."""


class MemberReport(NamedTuple):
    """What a member says of its engine, or of its latest step. `code` = it has failed, and is no longer at it.

    `is_done` = the engine of a leader is ready, with its port as `answer`, or the step has ended. `not_ready` = the
    engine of a leader was ready and no longer is.
    """

    is_done: bool = False
    answer: Any = None
    code: str = ""
    reason: str = ""
    not_ready: Optional[NotReady] = None


class GangMember:
    """One member's actor. It reports its state; the coordinator decides."""

    def __init__(self, member: Member, restarted: bool) -> None:
        try:
            self._seat = MemberSeat(member, restarted)
        except StartFailed as failure:
            cards = failure.places[0] if failure.places else Place()
            raise RuntimeError(encode_failure(FailedStart(
                failure.code, str(failure), gpu_uuids=cards.gpu_uuids, gpu_indices=cards.gpu_indices))) from None
        self._report = self._step = MemberReport()
        self._serving = threading.Event()
        self._not_ready: Optional[NotReady] = None

    def seat(self) -> Tuple[Place, int]:
        """Return the member's place, and the port for its gang if it is the leader."""
        return self._seat.place(), self._seat.leader_port

    def start(self, injected: Mapping[str, str], lifecycle: Lifecycle, within_s: float) -> None:
        """Start the engine, which must be ready within `within_s` seconds; runs in the actor's main thread."""
        engine = self._seat.start_engine(injected)
        threading.Thread(target=self._follow, daemon=True,
                         args=(engine, lifecycle, time.monotonic() + within_s)).start()

    def _follow(self, engine: EngineProcess, lifecycle: Lifecycle, deadline: float) -> None:
        try:
            if self._seat.member.rank == 0:
                engine.become_ready(deadline, lifecycle.startup_timeout)
                self._report = MemberReport(True, engine.served_port())
            reason, code = engine.watch(self._serving), engine.code_of_end()
        except Exception as error:
            failure = start_failure(error)
            reason, code = str(failure), failure.code
        log_of(self._seat.member).end(reason)
        # at once, so that the others' end does not wait for this one's
        self._report = MemberReport(code=code, reason=reason)
        engine.stop()

    def serve(self) -> Tuple[Optional[ServedWeights], Optional[GotCaches]]:
        """Record that the whole gang is ready, and return the weights and caches for the member's place.

        Liveness counts from now on, and the weights are checked; before, a rank may still be loading.
        """
        self._serving.set()
        self._seat.is_serving()
        if self._seat.member.rank == 0:
            self._seat.keep_probing(self._tell)
        self._seat.keep_files()
        return self._seat.served_weights(), self._seat.got_caches()

    def offers(self) -> List[Offer]:
        """Return the caches that other members may fetch from here."""
        return self._seat.offers()

    def _tell(self, state: Optional[NotReady]) -> None:
        self._not_ready = state

    def take_step(self, step: str, *given: Any) -> None:
        """Run a step of a start or a reload, a method of the seat, in a thread; `step` reports its end."""
        self._step = MemberReport()
        threading.Thread(target=self._take_step, args=(step, given), daemon=True).start()

    def _take_step(self, step: str, given: Tuple[Any, ...]) -> None:
        try:
            self._step = MemberReport(True, getattr(self._seat, step)(*given))
        except Exception as error:
            failure = start_failure(error)
            self._step = MemberReport(True, code=failure.code, reason=str(failure))

    def step(self) -> MemberReport:
        """Return the report of the latest step."""
        return self._step

    def leave(self) -> None:
        """End the engine and return when all its processes are gone and its cards are free."""
        self._seat.end_engine()

    def poll(self) -> MemberReport:
        """Return the report of the engine."""
        return self._report._replace(not_ready=self._not_ready)

    def cause(self) -> Optional[Cause]:
        """Return the error in the engine's output that may have ended its gang, if there is one."""
        return self._seat.cause()


class GangCoordinator(ReplicaActor):
    """The replica as a whole."""

    _engines_begin = False
    """Whether a member may have an engine."""

    def __init__(self, *parts: bytes) -> None:
        self._members: List[Any] = []
        super().__init__(*parts)

    def _start(self) -> None:
        self._require_nodes()
        self._give_back()
        self._take_seats()
        self._start_engines()
        self._places = [place._replace(weights=weights, caches=caches)
                        for place, (weights, caches) in zip(self._places, self._call_all("serve"))]

    def _require_nodes(self) -> None:
        """Raise StartFailed if a node of ours is dead: the gang is pinned to it, so a restart cannot help."""
        alive = alive_nodes()
        dead = sorted({member.node for member in self._replica.members if member.node_id not in alive})
        if dead:
            raise StartFailed("NODE_GONE", f"{', '.join(dead)}: the node is dead or gone")

    def _fail(self, failure: StartFailed, restarted: bool) -> None:
        """End a start that failed. Raising is not enough while members exist.

        Ray lets a worker exit only when the tasks it waits for are done. The creation of a killed member never is, so
        Ray would report this process as ALIVE forever. So the members are ended first, and a process that still runs
        after that ends itself by force, with its reason kept for the agent.
        """
        permanent = failure.code == "NODE_GONE"
        if permanent or not restarted:
            self._failed = about(self._replica, failure)
            keep_failure(ray.get_runtime_context().get_actor_id(), self._failed)
            ending_s = self._ending_s() if self._engines_begin else 0.0
            threading.Timer(0 if permanent else ending_s + LEAVE_S, self._end_permanently).start()
        self._end_members()
        self._give_back()
        if permanent:
            log_of(self._replica.members[0]).end(f"{failure.code}: {failure}")
            time.sleep(LEAVE_S)
        super()._fail(failure, restarted)

    def _ending_s(self) -> float:
        """Return how long the members may take to end their engines, in seconds."""
        return self._replica.grace_s + LEAVING_S

    def _offers(self) -> List[Offer]:
        """Return what the members offer that answer at once."""
        asked = [member.offers.remote() for member in self._members]
        done, _ = ray.wait(asked, num_returns=len(asked), timeout=OFFERS_S)
        return [offer for answer in done for offer in ray.get(answer)]

    def _end_engines(self) -> None:
        """End the engines of all members that answer; a member that has died has no engine any more."""
        leaving = [member.leave.remote() for member in self._members]
        ray.wait(leaving, num_returns=len(leaving), timeout=self._ending_s())

    def _end_members(self) -> None:
        if self._engines_begin:
            self._end_engines()
        for member in self._members:
            ray.kill(member, no_restart=True)
        self._members = []

    def _name(self) -> str:
        """Return the name of this actor and of its placement group."""
        return actor_name(self._replica.model, self._replica.replica_id)

    def _take_group(self) -> PlacementGroup:
        """Request one bundle per member, each pinned to its node."""
        return placement_group(
            [bundle_for(member) for member in self._replica.members],
            strategy="PACK",
            name=self._name(),
            bundle_label_selector=[{"ray.io/node-id": member.node_id} for member in self._replica.members])

    def _give_back(self) -> None:
        """Remove our placement group, of this or an earlier incarnation, and wait until its name is free."""
        name = self._name()
        deadline = time.monotonic() + GIVE_BACK_S
        while time.monotonic() < deadline:
            try:
                remove_placement_group(ray.util.get_placement_group(name))
            except ValueError:
                return  # no such group: usually Ray has removed it together with its owner
            time.sleep(POLL_S)

    def _await_grant(self, group: PlacementGroup) -> None:
        """Return when the group is granted. A waiting group holds nothing, so any shortfall is caused by others."""
        timeout_s = self._replica.lifecycle.scheduling_timeout
        begun = time.monotonic()
        deadline = begun + timeout_s
        while not group.wait(min(NODE_CHECK_S, timeout_s)):
            self._require_nodes()
            if time.monotonic() < deadline:
                continue
            deadline += timeout_s
            short = shortfalls(self._replica.members)
            if short or time.monotonic() - begun >= GRANT_S:
                wanted = "; ".join(f"{format_claim(member)} on {member.node}" for member in self._replica.members)
                raise StartFailed("NODE_TAKEN", f"Ray did not grant {wanted} within {time.monotonic() - begun:.0f} s: "
                                                f"{'; '.join(short) or 'reason unknown'}")

    def _take_seats(self) -> None:
        """Seat every member. If members refuse their cards, the failure names the places of all that do.

        The run then looks for clean cards on their nodes, as for a replica of one member, and creates the gang again.
        """
        group = self._take_group()
        self._await_grant(group)
        remote_class = ray.remote(GangMember)
        for index, member in enumerate(self._replica.members):
            self._members.append(remote_class.options(
                max_restarts=0,
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index),
                **member_options(member),
            ).remote(member, self._restarted))
        seats: List[Tuple[Place, int]] = []
        refusals: List[StartFailed] = []
        for answer in [actor.seat.remote() for actor in self._members]:
            try:
                seats += self._get([answer])
            except StartFailed as failure:
                if failure.code not in REFUSED or not failure.places:
                    raise
                refusals.append(failure)
        if refusals:
            refused = [place for refusal in refusals for place in refusal.places]
            first = next((refusal for refusal in refusals if refusal.code in CARD_FAILURES), refusals[0])
            raise StartFailed(first.code, str(first), refused)
        self._places = [place for place, _ in seats]
        self._leader_addresses = {(place.group, place.copy): (place.ip, port) for place, port in seats
                                  if place.rank == 0}

    def _start_engines(self) -> None:
        """Start all engines once all members have their files, and return when every gang's leader is ready."""
        lifecycle, deadline = self._replica.lifecycle, deadline_after(self._replica.lifecycle)
        variables = [injected_variables(self._replica, member, place, self._leader_addresses[place.group, place.copy])
                     for member, place in zip(self._replica.members, self._places)]
        with_files = {index: (variables[index], self._replica.fleet, deadline - time.monotonic())
                      for index, member in enumerate(self._replica.members) if member.weights or member.engine.caches}
        if with_files:
            self._take_step("fetch_files", with_files)
        self._engines_begin = True
        self._get([actor.start.remote(injected, lifecycle, deadline - time.monotonic())
                   for actor, injected in zip(self._members, variables)])
        self._await_leaders(deadline + MARGIN_S)

    def _await_leaders(self, deadline: float) -> None:
        """Return when every gang's leader is ready; raises StartFailed if any member ends."""
        leaders = [index for index, place in enumerate(self._places) if place.rank == 0]
        while time.monotonic() < deadline:
            reports: List[MemberReport] = self._call_all("poll")
            self._raise_if_failed(reports)
            if all(reports[index].is_done for index in leaders):
                for index in leaders:
                    self._places[index] = self._places[index]._replace(port=reports[index].answer)
                return
            time.sleep(POLL_S)
        allowed_s = self._replica.lifecycle.startup_timeout
        raise StartFailed("STARTUP_TIMEOUT", f"a leader was not ready within its startupTimeout of {allowed_s:g} s")

    def _raise_if_failed(self, reports: Sequence[MemberReport]) -> None:
        """Raise StartFailed for the first failure among the reports of all members."""
        for report, place in zip(reports, self._places):
            if report.code:
                reason = f"{_named(place)}: {report.reason}"
                raise self._failure_of_first(StartFailed(report.code, reason, [place]))

    def _failure_of_first(self, failure: StartFailed) -> StartFailed:
        """Return the failure with the error that came first in the gang: other members end because of it, some before.

        Whoever reports first may only say that a peer is gone.
        """
        if failure.code not in CAUSED:
            return failure
        asked = [member.cause.remote() for member in self._members]
        ray.wait(asked, num_returns=len(asked), timeout=CAUSE_S)
        causes: List[Optional[Cause]] = []
        for place, answer in zip(self._places, asked):
            try:
                cause: Optional[Cause] = ray.get(answer, timeout=0)
            except Exception:  # it has died, or is busy
                cause = None
            causes.append(cause if cause and (place in failure.places or cause.weight == RAISED) else None)
        first = first_of(causes)
        cause = causes[first] if first is not None else None
        if first is None or cause is None or self._places[first] in failure.places:
            return failure
        how, separator, output = str(failure).partition(LAST_OUTPUT)
        place = self._places[first]
        return StartFailed(failure.code, f"{how.partition(CAUSE)[0]}, after an error of {_named(place)}{CAUSE}"
                                         f"{cause.text}{separator}{output}", [place])

    def _call_all(self, method: str) -> List[Any]:
        """Ask all members, again while one is out of reach: its connection may come back, or Ray says that it died."""
        deadline = time.monotonic() + ANSWER_S
        while True:
            try:
                return self._get([getattr(member, method).remote() for member in self._members])
            except OutOfReach:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(POLL_S)

    def _get(self, refs: List[Any]) -> List[Any]:
        try:
            return list(ray.get(refs, timeout=ANSWER_S))
        except ray.exceptions.GetTimeoutError:
            raise StartFailed("MEMBER_SILENT", f"a member of the gang did not answer for {ANSWER_S:g} s") from None
        except ray.exceptions.RayTaskError as error:
            cause = getattr(error, "cause", None)
            raise StartFailed(getattr(cause, "code", "MEMBER_FAILED"), str(cause or error)) from None
        except ray.exceptions.RayError as error:  # a member died; after an out-of-memory kill Ray does not say which
            cause, died = decode_failure(str(error)), getattr(error, "actor_id", None)
            seats = self._places or list(map(place_of, self._replica.members))
            places = [place for actor, place in zip(self._members, seats) if actor._actor_id.hex() == died]
            if cause.code in CARD_FAILURES:
                places = [place._replace(gpu_uuids=cause.gpu_uuids, gpu_indices=cause.gpu_indices or ())
                          for place in places]
            subject = _named(places[0]) if places else "a member of the gang"
            if isinstance(error, ray.exceptions.ActorUnavailableError):
                raise OutOfReach("MEMBER_SILENT", f"{subject} could not be reached: {cause.message}", places) from None
            raise StartFailed(cause.code, f"{subject} died: {cause.message}", places) from None

    def _take_step(self, step: str, given: Mapping[int, Tuple[Any, ...]]) -> Dict[int, Any]:
        """Let members run a step; each bounds its own time. A reload waits for all, a start fails with the first."""
        self._get([self._members[index].take_step.remote(step, *arguments) for index, arguments in given.items()])
        while True:
            reports = [report if index in given else MemberReport()
                       for index, report in enumerate(self._call_all("step"))]
            all_done = all(reports[index].is_done for index in given)
            if all_done or not self._ready_at:
                self._raise_if_failed(reports)
            if all_done:
                return {index: reports[index].answer for index in given}
            time.sleep(POLL_S)

    def _await_end(self) -> StartFailed:
        """Return when a member ends, which ends the gang; Ray restarts the coordinator and the gang, up to the limit.

        The engines end first, and then the members are killed. If they exited slowly, as members of an exiting owner
        do, Ray would kill their child processes repeatedly, and both guards of an engine might die before they have
        ended it.
        """
        while True:
            try:
                time.sleep(POLL_S)
                reports: List[MemberReport] = self._call_all("poll")
                self._raise_if_failed(reports)
                self._see_readiness(next(
                    (found._replace(reason=f"{_named(place)}: {found.reason}")
                     for found, place in zip((report.not_ready for report in reports), self._places) if found), None))
            except Exception as error:
                failure = start_failure(error)
                if not self._leaving:
                    log_of(self._replica.members[0]).end(f"the gang is going down: {failure}")
                    self._end_members()
                return failure


def _named(place: Place) -> str:
    return f"rank {place.rank} of group {place.group}"
