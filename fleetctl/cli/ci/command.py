"""`fleetctl ci validate`, `review`, `apply`, `drift`: the steps of a job for a change, after its merge, on a schedule.

Each is the command of that name (review is plan) with what a job needs around it.
"""

from __future__ import annotations

from fleetctl.cli.commands import Listed, command_app, lazy_group

COMMANDS = {
    "validate": Listed("ci.validate", "Check fleet files, and report to the forge."),
    "review": Listed("ci.review", "Plan a change, and report to the forge."),
    "apply": Listed("ci.apply", "Apply what was merged, and report to the forge."),
    "drift": Listed("ci.drift", "Check on a schedule that the cluster runs what the files say."),
}
app = command_app(
    "fleetctl ci review -f fleets/ --report html=plan.html",
    "fleetctl ci apply prod.fleetplan",
    exit_codes="those of validate, plan and apply; see `fleetctl ci review --help`")


@app.callback(cls=lazy_group(COMMANDS))
def ci() -> None:
    """Validate, review or apply a change in a CI job; check for drift."""
