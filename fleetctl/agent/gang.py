"""A replica of several members: a coordinator without resources, and one actor per member in its placement group.

The coordinator is the named, detached actor; it owns the placement group and the members, so they die with it, and
Ray restarts it whole. No engine starts before all members are placed.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from typing import Any, Dict, List, Mapping, Optional, Tuple

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from .cards import REFUSED
from .claims import bundle_for, format_claim, member_options
from .clean_cards import MOST_TRIES, NONE_CLEAN, SEARCHING, CleanCards, find_all
from .cluster import shortfalls
from .engine import EngineProcess
from .failure import LEAVE_S, StartFailed, about, decode_failure, encode_failure, keep_failure, start_failure
from .mark import actor_name, injected_variables
from .member import MemberSeat, deadline_after, write_note, write_reason
from .replica import Replica, end_from_thread, fail_start, leave_soon

POLL_S = 0.5
GIVE_BACK_S = 30.0
NODES_S = 5.0
"""How often to look whether a node has died under a group that is not granted yet."""
GRANT_S = 300.0
"""How long Ray may take to grant a group that it has room for."""
ANSWER_S = 120.0
"""A member answers at once; before that its worker has to start and its cards to settle."""
MARGIN_S = 60.0


class GangMember:
    """One member's actor. It reports; the coordinator decides."""

    def __init__(self, member: Dict[str, Any]) -> None:
        try:
            self._seat = MemberSeat(member)
        except StartFailed as failure:
            raise RuntimeError(encode_failure(failure.code, str(failure))) from None
        self._state: Dict[str, Any] = {"state": "seated"}
        self._deadline: Optional[float] = None
        self._serving = threading.Event()

    def seat(self) -> Tuple[Dict[str, Any], str, int]:
        """Return the member's place, and host and port under which it would lead."""
        return self._seat.place(), self._seat.ip, self._seat.leader_port

    def fetch(self, injected: Dict[str, str], lifecycle: Dict[str, Any]) -> None:
        """Begin to fetch the weights: they count as part of the start."""
        self._deadline = deadline_after(lifecycle)
        self._state = {"state": "fetching"}
        threading.Thread(target=self._fetch, args=(injected, self._deadline), daemon=True).start()

    def _fetch(self, injected: Mapping[str, str], deadline: float) -> None:
        try:
            self._seat.fetch_weights(injected, deadline)
            self._state = {"state": "fetched"}
        except Exception as error:
            failure = start_failure(error)
            self._state = {"state": "ended", "code": failure.code, "reason": str(failure)}

    def start(self, injected: Dict[str, str], lifecycle: Dict[str, Any]) -> None:
        """Start the engine; runs in the actor's main thread."""
        self._engine = self._seat.start_engine(injected)
        self._state = {"state": "starting"}
        threading.Thread(target=self._follow, daemon=True,
                         args=(self._engine, lifecycle, self._deadline or deadline_after(lifecycle))).start()

    def _follow(self, engine: EngineProcess, lifecycle: Mapping[str, Any], deadline: float) -> None:
        try:
            if int(self._seat.member["rank"]) == 0:
                engine.become_ready(deadline, float(lifecycle["startupTimeout"]))
                self._state = {"state": "ready", "port": engine.served_port()}
            reason, code = engine.watch(self._serving), "ENGINE_EXITED"
        except Exception as error:
            failure = start_failure(error)
            reason, code = str(failure), failure.code
            engine.stop()
        write_reason(self._seat.member, reason)
        self._state = {"state": "ended", "code": code, "reason": reason}

    def serve(self) -> Dict[str, Any]:
        """Note that the whole gang is ready, and return what is new in the member's place.

        From now on liveness counts; before that, a rank may still load.
        """
        self._serving.set()
        return self._seat.served_weights()

    def take_step(self, step: str, *given: Any) -> None:
        """Begin a step of a reload, a method of the seat, in a thread: `step` says when it is done."""
        self._step: Dict[str, Any] = {}
        threading.Thread(target=self._take_step, args=(step, given), daemon=True).start()

    def _take_step(self, step: str, given: Tuple[Any, ...]) -> None:
        try:
            self._step = {"answer": getattr(self._seat, step)(*given)}
        except Exception as error:
            failure = start_failure(error)
            self._step = {"code": failure.code, "reason": str(failure)}

    def step(self) -> Dict[str, Any]:
        """Return the answer of the latest step, or code and reason of its failure; empty while it runs."""
        return self._step

    def leave(self) -> None:
        """End the engine and return when nothing of it is left."""
        self._seat.end_engine(self._engine)

    def poll(self) -> Dict[str, Any]:
        """Return the state: seated, starting, ready (leaders, with their port) or ended with code and reason."""
        return self._state


class GangCoordinator(Replica):
    """The replica as a whole."""

    def __init__(self, *parts: bytes) -> None:
        self._members: List[Any] = []
        super().__init__(*parts)

    def _start(self) -> None:
        self._require_nodes()
        self._give_back()
        self._take_seats()
        self._start_engines()
        for place, new in zip(self._places, self._ask(self._members, "serve")):
            place.update(new)

    def _require_nodes(self) -> None:
        """Raise where a node of ours is dead: we are pinned to it, so no restart can help."""
        alive = {record["NodeID"] for record in ray.nodes() if record["Alive"]}
        dead = sorted({member["node"] for member in self._replica["members"] if member["nodeId"] not in alive})
        if dead:
            raise StartFailed("NODE_GONE", f"{', '.join(dead)}: the node is dead or gone")

    def _fail(self, failure: StartFailed, restarted: bool) -> None:
        """End a start that failed. Never by raising alone while members are open.

        Ray lets a worker leave only when the tasks it waits for are done, and the creation of a member that was cut
        short is never done: the process would stay, ALIVE for Ray permanently. So the members go first, and a
        process that is still here after that ends itself by force, with its reason kept where the agent finds it.
        """
        permanent = failure.code == "NODE_GONE"
        if permanent or not restarted:
            keep_failure(ray.get_runtime_context().get_actor_id(), failure.code, str(failure))
            self._failed = {"code": failure.code, "message": str(failure), **about(self._replica, failure.place)}
            threading.Timer(0 if permanent else LEAVE_S, self._end_permanently).start()
        self._end_members()
        self._give_back()
        if permanent:
            write_reason(self._replica["members"][0], f"{failure.code}: {failure}")
            time.sleep(LEAVE_S)
        fail_start(self._replica, failure, restarted)

    def _end_members(self) -> None:
        for member in self._members:
            ray.kill(member, no_restart=True)
        self._members = []

    def _end_permanently(self) -> None:
        """End this actor without a restart: by Ray, and where Ray does not do it, by itself."""
        try:
            ray.kill(ray.get_runtime_context().current_actor, no_restart=True)
            time.sleep(LEAVE_S)
        finally:
            os._exit(1)

    def _name(self) -> str:
        """Return the name of this actor, which is that of its placement group, too."""
        return actor_name(self._replica["model"], self._replica["replicaId"])

    def _take_group(self) -> PlacementGroup:
        """Ask for one bundle per member, each pinned to its node."""
        return placement_group(
            [bundle_for(member) for member in self._replica["members"]],
            strategy="PACK",
            name=self._name(),
            bundle_label_selector=[{"ray.io/node-id": member["nodeId"]} for member in self._replica["members"]])

    def _give_back(self) -> None:
        """Remove our own placement group, of this incarnation or an earlier one, and wait until its name is free."""
        name = self._name()
        deadline = time.monotonic() + GIVE_BACK_S
        while time.monotonic() < deadline:
            try:
                remove_placement_group(ray.util.get_placement_group(name))
            except ValueError:
                return  # none of that name: mostly Ray gave it back together with its owner
            time.sleep(POLL_S)

    def _await_grant(self, group: PlacementGroup) -> None:
        """Return when the group is granted; a group that waits holds nothing, so others cause a shortfall."""
        timeout_s = float(self._replica["lifecycle"]["schedulingTimeout"])
        begun = time.monotonic()
        deadline = begun + timeout_s
        while not group.wait(min(NODES_S, timeout_s)):
            self._require_nodes()
            if time.monotonic() < deadline:
                continue
            deadline += timeout_s
            short = shortfalls(self._replica["members"])
            if short or time.monotonic() - begun >= GRANT_S:
                wanted = "; ".join(f"{format_claim(member)} on {member['node']}" for member in self._replica["members"])
                raise StartFailed("NODE_TAKEN", f"Ray did not grant {wanted} within {time.monotonic() - begun:.0f} s: "
                                                f"{'; '.join(short) or 'no reason known'}")

    def _take_seats(self) -> None:
        """Seat all members; where cards in use were granted and clean ones are free there, hold those and ask again."""
        held: List[CleanCards] = []
        try:
            for tries_left in reversed(range(MOST_TRIES)):
                in_use = self._seat_members(self._take_group())
                if not in_use:
                    return
                failure = in_use[0]
                if not tries_left:
                    raise failure
                self._end_members()
                self._give_back()
                write_note(self._replica["members"][0], f"{failure}: {SEARCHING}")
                nodes = {one.place["nodeId"] for one in in_use if one.place}
                found = [CleanCards(members) for node_id in sorted(nodes) if (members := self._claiming(node_id))]
                held += found
                if not find_all(found):
                    raise StartFailed(failure.code, f"{failure}; {NONE_CLEAN}", failure.place)
        finally:
            for search in held:
                search.release()

    def _claiming(self, node_id: str) -> List[Mapping[str, Any]]:
        """Return the members on a node that claim cards."""
        return [member for member in self._replica["members"] if member["nodeId"] == node_id and int(member["gpus"])]

    def _seat_members(self, group: PlacementGroup) -> List[StartFailed]:
        """Give every member its seat; returns what those said whose cards are in use. Then none has one."""
        self._await_grant(group)
        remote_class = ray.remote(GangMember)
        for index, member in enumerate(self._replica["members"]):
            self._members.append(remote_class.options(
                max_restarts=0,
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index),
                **member_options(member),
            ).remote(member))
        seats: List[Any] = []
        in_use: List[StartFailed] = []
        for answer in [actor.seat.remote() for actor in self._members]:
            try:
                seats += self._get([answer])
            except StartFailed as failure:
                if failure.code not in REFUSED or failure.place is None:
                    raise
                in_use.append(failure)
        if in_use:
            return in_use
        self._places = [place for place, _, _ in seats]
        self._leads = {
            (place["group"], place["copy"]): (host, port) for place, host, port in seats if int(place["rank"]) == 0
        }
        return []

    def _start_engines(self) -> None:
        """Start all engines, once all have their weights, and return when every gang's leader is ready."""
        sizes = Counter((place["group"], place["copy"]) for place in self._places)
        deadline = deadline_after(self._replica["lifecycle"]) + MARGIN_S
        starts = []
        for actor, member, place in zip(self._members, self._replica["members"], self._places):
            gang = (place["group"], place["copy"])
            host, port = self._leads[gang]
            injected = injected_variables(self._replica, member, sizes[gang], place["port"], host, port)
            starts.append((actor, injected, self._replica["lifecycle"]))
        fetching = [index for index, member in enumerate(self._replica["members"]) if member.get("weights")]
        self._get([starts[index][0].fetch.remote(*starts[index][1:]) for index in fetching])
        self._wait_for("fetched", fetching, deadline, "the weights of a member were not there")
        self._get([actor.start.remote(injected, lifecycle) for actor, injected, lifecycle in starts])
        leaders = [index for index, place in enumerate(self._places) if int(place["rank"]) == 0]
        for index, state in self._wait_for("ready", leaders, deadline, "a leader was not ready").items():
            self._places[index]["port"] = state["port"]

    def _wait_for(self, state: str, members: List[int], deadline: float, late: str) -> Dict[int, Dict[str, Any]]:
        """Return the states of these members, once all have reached `state`; raises StartFailed when any one ends."""
        while members and time.monotonic() < deadline:
            states = self._ask(self._members, "poll")
            self._raise_if_ended(states)
            if all(states[index]["state"] == state for index in members):
                return {index: states[index] for index in members}
            time.sleep(POLL_S)
        if not members:
            return {}
        allowed_s = self._replica["lifecycle"]["startupTimeout"]
        raise StartFailed("STARTUP_TIMEOUT", f"{late} within its startupTimeout of {allowed_s} s")

    def _raise_if_ended(self, states: List[Mapping[str, Any]]) -> None:
        for state, place in zip(states, self._places):
            if state["state"] == "ended":
                raise StartFailed(state["code"], f"rank {place['rank']} of group {place['group']}: {state['reason']}",
                                  place)

    def _ask(self, members: List[Any], method: str) -> List[Any]:
        return self._get([getattr(member, method).remote() for member in members])

    def _get(self, refs: List[Any]) -> List[Any]:
        try:
            return list(ray.get(refs, timeout=ANSWER_S))
        except ray.exceptions.GetTimeoutError:
            raise StartFailed("MEMBER_SILENT", f"a member of the gang did not answer for {ANSWER_S:g} s") from None
        except ray.exceptions.RayTaskError as error:
            cause = getattr(error, "cause", None)
            raise StartFailed(getattr(cause, "code", "MEMBER_FAILED"), str(cause or error)) from None
        except ray.exceptions.RayError as error:  # it has died; where Ray ended it for memory, it does not say which
            code, message = decode_failure(str(error))
            died = getattr(error, "actor_id", None)
            place = next((member for actor, member in zip(self._members, self._places or self._replica["members"])
                          if actor._actor_id.hex() == died), None)
            who = f"rank {place['rank']} of group {place['group']}" if place else "a member of the gang"
            raise StartFailed(code, f"{who} died: {message}", place) from None

    def _take_step(self, step: str, given: Mapping[int, Tuple[Any, ...]]) -> Dict[int, Any]:
        """Let members take a step of a reload; each bounds its own time."""
        actors = {index: self._members[index] for index in given}
        self._get([actor.take_step.remote(step, *given[index]) for index, actor in actors.items()])
        while True:
            found = dict(zip(actors, self._ask(list(actors.values()), "step")))
            if all(found.values()):
                break
            time.sleep(POLL_S)
        for index, one in found.items():
            if "code" in one:
                rank, group = self._places[index]["rank"], self._places[index]["group"]
                raise StartFailed(one["code"], f"rank {rank} of group {group}: {one['reason']}")
        return {index: one["answer"] for index, one in found.items()}

    def leave(self) -> None:
        """End all engines and return when nothing of them is left; eviction ends the rest."""
        self._leaving = True
        leave_soon()
        self._ask(self._members, "leave")

    def _end_with_engines(self) -> None:
        """A member's end is the gang's end; Ray restarts the coordinator, and with it everything, up to the limit.

        The members go first, by force: where Ray lets them leave slowly, as those of an owner that leaves, it ends the
        children of their processes more than once, and both guards of an engine may go before they have ended it.
        """
        try:
            while True:
                time.sleep(POLL_S)
                self._raise_if_ended(self._ask(self._members, "poll"))
        except Exception as error:
            failure = start_failure(error)
            if not self._leaving:
                write_reason(self._replica["members"][0], f"the gang goes down: {failure}")
                self._end_members()
                end_from_thread(self._replica, failure.code, str(failure), failure.place)
        finally:
            if not self._leaving:
                os._exit(1)
