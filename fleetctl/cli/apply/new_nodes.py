"""`apply --wait-for-nodes`: as nodes come that the autoscaler was asked for, plan again and create on them."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

from fleetctl.apply.prepare import ApplyTask
from fleetctl.cli.apply.output import ApplyOutput
from fleetctl.cli.console import say
from fleetctl.errors import InventoryError, LockHeld
from fleetctl.fleetfile.load import LoadedFleet
from fleetctl.planner.options import PlanOptions
from fleetctl.workflow.invocation import Invocation, Where
from fleetctl.workflow.proposal import Proposal, proposed_by_fleet, refuse_by_policy

LOOK_EVERY_S = 3.0
ASKED = "Ray's autoscaler stays asked for them"


@dataclass(frozen=True, slots=True)
class Looks:
    """What is planned again at each look: the fleet that was agreed to, whatever has become of its files."""

    invocation: Invocation
    loaded: LoadedFleet
    options: PlanOptions
    where: Where

    def look(self) -> AbstractContextManager[Proposal]:
        """Plan on the cluster as it is now; without a word, for there are many looks."""
        quiet = replace(self.invocation, say=lambda *_: None, working=nullcontext)
        return proposed_by_fleet(quiet, self.loaded, self.options, self.where)


def apply_on_new_nodes(looks: Looks, output: ApplyOutput, wait_s: float, run: Callable[[ApplyTask], int]) -> int:
    """Apply again whenever there is something to create, until nothing waits for nodes or the time is over.

    Each time is an apply like any other, so that meanwhile nobody is locked out. Returns the exit code of the whole.
    """
    until, waits_for, said = time.monotonic() + wait_s, "", set[str]()
    try:
        while True:
            late = time.monotonic() >= until
            try:
                code, nodes = _once(looks, output, run, said, late=late)
            except InventoryError:
                if late or not output.goes_on:
                    raise
                nodes = waits_for  # the dashboard is away for a moment
            if not output.goes_on:
                return code
            if nodes not in ("", waits_for):
                waits_for = nodes
                say("note", f"waiting for {nodes}; should this command end, {ASKED}")
            time.sleep(LOOK_EVERY_S)
    except KeyboardInterrupt:
        return output.detach(f"not waiting for nodes any more; {ASKED}")


def _once(
    looks: Looks, output: ApplyOutput, run: Callable[[ApplyTask], int], said: set[str], *, late: bool
) -> tuple[int, str]:
    """Look, and apply if there is something to create or this is the last time; returns which nodes it waits for.

    What the autoscaler says is shown, each sentence once.
    """
    code = 0
    with looks.look() as proposal:
        plan = proposal.task.plan
        for sentence in proposal.shown.autoscaler:
            if sentence not in said:
                say("note", sentence)
        said.update(proposal.shown.autoscaler)
        if plan.actions or late or not plan.waits_for_nodes:
            if late and plan.waits_for_nodes:
                say("warning", f"the time to wait for nodes is over; {ASKED}")
            refuse_by_policy(looks.invocation, plan, force=looks.options.force)
            output.goes_on = plan.waits_for_nodes and not late
            output.plan = plan
            try:
                code = run(proposal.task)
            except LockHeld:
                if late:
                    raise
                output.goes_on = True  # another apply is at it, perhaps for the same nodes
    return code, plan.new_nodes
