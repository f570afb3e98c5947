"""What of a plan waits for a pilot: replicas of a spec that never ran, which follow once one of it is ready."""

from __future__ import annotations

from collections import Counter
from typing import Collection, Dict, Iterator, List, Optional, Sequence, Set, Tuple, Union

from .attempt import Attempt
from .engine import without_output
from .messages import Replica
from .run import OnNodes, outcome_of
from .run_messages import Outcome, Plan

AFTER_PILOT, PILOT_FAILED = "AFTER_PILOT", "PILOT_FAILED"
"""The codes of replicas that still wait for their pilot, and of those whose pilot failed."""
NEXT_APPLY = "the next apply creates them"
Spec = Tuple[str, Optional[str]]
"""A model and one of its variants; None = it has none."""


class Pilots:
    """The replicas that wait, by model and variant. A pilot is `ready`, then `asked` about until there is an answer.

    `may_follow` = this run may create what waits: it awaits its pilots, and a client can plan again.
    """

    def __init__(self, plan: Plan, may_follow: bool) -> None:
        self._waiting = _waiting_in(plan)
        self._on_new_nodes = _on_new_nodes(plan)
        """By model: how many wait until a pilot is ready and their nodes have joined. They are blocked meanwhile."""
        self._may_follow = may_follow
        self._why: Dict[str, str] = {}
        """By model: why nothing follows a pilot that is ready."""
        self.ready: List[Outcome] = []
        self.asked: List[Outcome] = []

    @property
    def count(self) -> int:
        """How many replicas wait."""
        return sum(self._waiting.values())

    @property
    def are_open(self) -> bool:
        """Whether there is a question to the client, or one without an answer yet."""
        return bool(self.ready or self.asked)

    @property
    def following(self) -> int:
        """How many replicas wait for the pilots that were asked about."""
        models = {pilot.model for pilot in self.asked}
        return sum(count for spec, count in self._waiting.items() if any(_is_of(pilot, spec) for pilot in self.asked)
                   ) + sum(count for model, count in self._on_new_nodes.items() if model in models)

    def begin(self, attempts: Sequence[Attempt]) -> None:
        """Ask about what waits for a pilot that is not among the `attempts`: its start has ended since the plan."""
        for model, variant in self._waiting if self._may_follow else ():
            if not any(_is_of(one.replica, (model, variant)) for one in attempts):
                self.ready.append(Outcome(model, "ready", variant=variant))

    def note(self, attempt: Attempt) -> bool:
        """Note that an attempt has ended; returns whether it was a pilot, and others may follow it."""
        found = attempt.outcome
        if not (self._may_follow and found and found.outcome == "ready"):
            return False
        follow = found.model in self._on_new_nodes or any(_is_of(found, spec) for spec in self._waiting)
        self.ready += [found] if follow else []
        return follow

    def ask(self) -> List[Outcome]:
        """Return the pilots that are ready, for a question about them."""
        self.asked, self.ready = self.ready, []
        return self.asked

    def planned(self, models: Collection[str], plan: Plan) -> Set[str]:
        """Note what waits after a new plan of these models and of those that were asked about, which it returns."""
        found = {pilot.model for pilot in self.asked}
        others = {spec: count for spec, count in self._waiting.items() if spec[0] not in {*found, *models}}
        self._waiting, self.asked = Counter({**others, **_waiting_in(plan)}), []
        self._on_new_nodes = {model: count for model, count in self._on_new_nodes.items() if model not in found}
        return found

    def not_planned(self, why: str) -> None:
        """Note why nothing follows the pilots that were asked about, in this run."""
        self._why.update({pilot.model: f"{ready_text(pilot, 'their')}, but {why}" for pilot in self.asked})
        self.asked = []

    def left(self, attempts: Sequence[Attempt], interrupted: bool) -> Iterator[Outcome]:
        """Yield an outcome for what still waits when the run ends; `attempts` = all of the run."""
        for spec, count in self._waiting.items():
            code, why = self._reason(spec, [one for one in attempts if _is_of(one.replica, spec)])
            if interrupted:
                code, why = "INTERRUPTED", "the apply was interrupted"
            variant = f"variant {spec[1]}: " if spec[1] else ""
            yield outcome_of(OnNodes(spec[0], ()), "skipped", code, f"{variant}{why}", replicas=count)

    def _reason(self, spec: Spec, pilots: Sequence[Attempt]) -> Tuple[str, str]:
        """Return why the others of a spec were not created: the code and the message."""
        if spec[0] in self._why:
            return AFTER_PILOT, f"{self._why[spec[0]]}; {NEXT_APPLY}"
        ended = [(one.key, one.outcome) for one in pilots if one.outcome]
        for key, found in ended:
            if found.outcome == "ready":
                return AFTER_PILOT, f"{ready_text(found, 'their')}; {NEXT_APPLY}"
            if found.outcome == "failed" and len(ended) == len(pilots):
                return PILOT_FAILED, f"their pilot {key} failed: {found.code}: {without_output(found.message)}"
        names = ", ".join(one.key for one in pilots)
        return AFTER_PILOT, f"{NEXT_APPLY}, once their pilot{f' {names}' if names else ''} is ready"


def _waiting_in(plan: Plan) -> "Counter[Spec]":
    return Counter((row.model, row.variant) for row in plan.after_pilot)


def _on_new_nodes(plan: Plan) -> Dict[str, int]:
    return {row.model: row.after_pilot for row in plan.blocked if row.after_pilot}


def _is_of(one: Union[Replica, Outcome], spec: Spec) -> bool:
    """Return whether a replica is of a spec, or may be: one that an earlier run has begun names no variant."""
    return one.model == spec[0] and one.variant in (spec[1], None)


def ready_text(pilot: Outcome, whose: str = "") -> str:
    """Say that a pilot is ready, or that the start of one that this run does not await has ended."""
    if pilot.replica_id is None:
        return f"the start of {whose or 'a'} pilot has ended"
    return f"{whose} pilot {pilot.model}/{pilot.replica_id} is ready".strip()
