"""`fleetctl ci validate`, `review`, `apply`, `rollout`, `drift`: the steps of CI jobs.

Each is the command of that name (`plan` for review and drift) with settings from variables and a report to the forge.
"""

from __future__ import annotations

from fleetctl.cli.commands import Listed, command_app, lazy_group

COMMANDS = {
    "validate": Listed("ci.review", "Check fleet files, and report to the forge."),
    "review": Listed("ci.review", "Plan a change, and report to the forge."),
    "apply": Listed("ci.apply", "Apply a merged change, and report to the forge."),
    "rollout": Listed("ci.rollout", "Replace all that is outdated, and report to the forge."),
    "drift": Listed("ci.review", "Check on a schedule that the cluster matches the files."),
}
app = command_app(
    "fleetctl ci review -f fleets/ --report html=plan.html",
    "fleetctl ci apply prod.fleetplan",
    exit_codes="see `fleetctl ci COMMAND --help`")


@app.callback(cls=lazy_group(COMMANDS))
def ci() -> None:
    """Validate, review or apply a change in a CI job; check for drift."""
