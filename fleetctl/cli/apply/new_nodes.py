"""`apply --wait-for-nodes`: as nodes come that the autoscaler was asked for, plan again and create on them."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

from fleetctl.apply.prepare import ApplyTask
from fleetctl.cli.apply.output import ApplyOutput
from fleetctl.cli.console import say
from fleetctl.planner.options import PlanOptions
from fleetctl.workflow.invocation import Invocation, Where
from fleetctl.workflow.proposal import proposed_by_files, refuse_by_policy

LOOK_EVERY_S = 3.0


def apply_on_new_nodes(
    invocation: Invocation, options: PlanOptions, where: Where, output: ApplyOutput, wait_s: float,
    run: Callable[[ApplyTask], int],
) -> int:
    """Apply again whenever there is something to create, until nothing waits for nodes or the time is over.

    Each time is an apply like any other, so that meanwhile nobody is locked out. Returns the exit code of the whole.
    """
    quiet = replace(invocation, say=lambda *_: None, working=nullcontext)
    until, waits_for = time.monotonic() + wait_s, ""
    while True:
        with proposed_by_files(quiet, options, where) as proposal:
            plan, late = proposal.task.plan, time.monotonic() >= until
            output.goes_on = plan.waits_for_nodes and not late
            if plan.actions or not output.goes_on:
                if late and plan.waits_for_nodes:
                    say("warning", "the time to wait for nodes is over; Ray's autoscaler stays asked for them")
                refuse_by_policy(invocation, plan, force=options.force)
                output.plan = plan
                code = run(proposal.task)
                if not output.goes_on:
                    return code
        if plan.new_nodes not in ("", waits_for):
            waits_for = plan.new_nodes
            say("note", f"waiting for {waits_for}; closing this command leaves Ray's autoscaler asked for them")
        try:
            time.sleep(LOOK_EVERY_S)
        except KeyboardInterrupt:
            return output.detach("stopped waiting for nodes; Ray's autoscaler stays asked for them")
