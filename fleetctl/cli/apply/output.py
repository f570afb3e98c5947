"""Standard output of `fleetctl apply`: tables, the result as JSON, or one line per event.

In the formats for programs the last line is a `runSummary`, however the run ended; only usage errors have none.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Literal

import typer

from fleetctl.apply.outcome import INTERRUPTED, PARTIAL, all_outcomes, final_exit_code
from fleetctl.cli.console import say, show_report, write_result
from fleetctl.cli.process import now_text
from fleetctl.documents.base import FORMAT_VERSION
from fleetctl.documents.events import Event, ReplicaOutcome, RunSummary
from fleetctl.documents.plan import Plan
from fleetctl.errors import FleetctlError, UsageError
from fleetctl.render.report.of_runs import outcomes_report, totals
from fleetctl.version import __version__

ApplyFormat = Literal["table", "json", "jsonl"]

FormatOption = Annotated[
    ApplyFormat, typer.Option("--format", help="Output format; json is the result, jsonl every event and the result.")
]
NOTHING_DONE = "--dry-run: nothing was done"


class ApplyOutput:
    """Standard output of one apply. `plan` is set once it is known, `outcomes` once the apply has ended.

    While `goes_on` is set, more runs follow: the outcomes of a run are kept for the result of the last one.
    """

    def __init__(self, chosen: ApplyFormat) -> None:
        self.format = chosen
        self.verb = "apply"
        self.plan: Plan | None = None
        self.outcomes: list[ReplicaOutcome] = []
        self.goes_on = False
        self._before: list[ReplicaOutcome] = []
        self._last_seq = -1
        self._agents: RunSummary | None = None

    @contextmanager
    def ends_with_summary(self) -> Iterator[None]:
        """Write the last line for an error, too, and re-raise the error."""
        try:
            yield
        except UsageError:
            raise
        except FleetctlError as error:
            self._show_before()
            message = "; ".join([error.message, *error.listed])  # one line for programs
            self._write_last(message, error.exit_code, self._before, level="error")
            raise

    def relay(self, event: Event) -> None:
        """Write one event of the agent; its summary is kept for `finish` or an error."""
        if event.type == "nodesNotRequested":
            self.goes_on = False
        if isinstance(event, RunSummary):
            self._agents = event
        elif self.format == "jsonl" and not (event.type == "version" and self._last_seq >= 0):
            self._write(event.model_copy(update={"seq": max(event.seq, self._last_seq + 1)}))

    def finish(self, summary: RunSummary | None) -> int:
        """Show the result in the chosen format and return its exit code; `summary` None = nothing was submitted."""
        self._agents = summary
        interrupted = summary is not None and summary.interrupted
        outcomes = self.outcomes = [*self._before, *all_outcomes(self.plan, summary)]
        self.goes_on = self.goes_on and not interrupted
        if self.goes_on:
            self._before = [row for row in outcomes if row.outcome != "blocked"]
            return PARTIAL
        code = final_exit_code(outcomes, interrupted=interrupted, waited=summary is None or summary.waited)
        # an interrupted run may have left no outcomes to count
        note = summary.message if summary is not None and interrupted and not outcomes else None
        if self.format == "table":
            self._show(outcomes, note, interrupted=interrupted)
        self._write_last(note or totals(outcomes, interrupted=interrupted, verb=self.verb), code, outcomes)
        return code

    def show_dry_run(self) -> int:
        """Report what would be created, as skipped outcomes; returns 3 if something does not fit."""
        say("note", NOTHING_DONE)
        blocked = all_outcomes(self.plan, None)
        would = [ReplicaOutcome(model=one.model, replica_id=one.replica_id, outcome="skipped", code="DRY_RUN",
                                nodes=list(dict.fromkeys(member.node for member in one.members)),
                                message="it would be created") for one in (self.plan.actions if self.plan else ())]
        code = final_exit_code(blocked, interrupted=False)
        self._write_last(NOTHING_DONE, code, [*would, *blocked])
        return code

    def detach(self, note: str) -> int:
        """Report that the client has detached from the run, and return the exit code."""
        self.goes_on = False
        say("note", note)
        self._show_before()
        self._write_last(note, INTERRUPTED, self._before)
        return INTERRUPTED

    def _show_before(self) -> None:
        """Show the outcomes of earlier runs if there is no last run to show them."""
        if self._before and self.format == "table":
            self._show(self._before, None, interrupted=False)

    def _show(self, outcomes: Sequence[ReplicaOutcome], note: str | None, *, interrupted: bool) -> None:
        if note:
            say("note", note)
        else:
            show_report(outcomes_report(outcomes, interrupted=interrupted, verb=self.verb))
        sys.stdout.flush()

    def _write_last(
        self, message: str, code: int, outcomes: Sequence[ReplicaOutcome] = (), *, level: str | None = None
    ) -> None:
        """Write the summary of the whole result, with the other fields of the agent's own summary."""
        if self.format == "table":
            return
        if self.format == "jsonl" and self._last_seq < 0:
            self._write(_version(self.plan))
        fields: dict[str, Any] = {"interrupted": code == INTERRUPTED}
        if self._agents is not None:
            fields = self._agents.model_dump(by_alias=True)
        if self.plan is not None:
            fields["planId"] = self.plan.plan_id
        self._write(RunSummary.model_validate(fields | {
            "seq": max(self._last_seq + 1, fields.get("seq", 0)), "time": fields.get("time") or now_text(),
            "type": "runSummary", "level": level or ("info" if code == 0 else "warning"), "message": message,
            "exitCode": code, "outcomes": [row.model_dump(by_alias=True, exclude_none=True) for row in outcomes],
        }))

    def _write(self, event: Event) -> None:
        write_result(event.model_dump_json(by_alias=True, exclude_none=True) + "\n")
        self._last_seq = event.seq


class CollectedOutput(ApplyOutput):
    """The output of one step of a larger verb: writes nothing, keeps `outcomes` for the result of the whole."""

    def __init__(self, plan: Plan) -> None:
        super().__init__("json")
        self.plan = plan

    def _write(self, event: Event) -> None:
        """Write nothing."""


def _version(plan: Plan | None) -> Event:
    """Return the first event of a run, for a run without an agent."""
    return Event.model_validate({
        "seq": 0, "time": now_text(), "type": "version", "message": f"fleetctl {__version__}, events {FORMAT_VERSION}",
        "version": FORMAT_VERSION, "toolVersion": __version__, **({"planId": plan.plan_id} if plan else {}),
    })
