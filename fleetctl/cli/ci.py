"""`fleetctl ci validate`, `review` and `apply`: what a job of a pull request, and one after its merge, has to do.

Each is the command of that name (review is plan) with what a job needs around it. A template cannot build a command
line safely, so every flag has a variable; lists have a line for each entry.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from fleetctl.cli.ci_job import FailOn, Job
from fleetctl.cli.help import epilog
from fleetctl.cli.options import AddressOption, NamespaceOption, OptionalFilesOption, duration
from fleetctl.cli.reporting import ReportOption
from fleetctl.forge.change import ForgeName

GROUP_EPILOG = epilog(
    examples=["fleetctl ci review -f fleets/prod.yaml --report html=plan.html", "fleetctl ci apply prod.fleetplan"],
    exit_codes="those of validate, plan and apply; `fleetctl ci review --help` tells them",
)
VALIDATE_EPILOG = epilog(
    examples=["fleetctl ci validate -f fleets/prod.yaml --report junit=fleet.xml"],
    exit_codes="0 fine (warnings included), 1 errors, 64 usage",
)
REVIEW_EPILOG = epilog(
    examples=[
        "fleetctl ci review -f fleets/prod.yaml --address http://ray-head:8265",
        "fleetctl ci review -f fleets/prod.yaml --inventory snapshot.json --report html=plan.html",
        "fleetctl ci review -f fleets/prod.yaml --out prod.fleetplan --fail-on blocked",
    ],
    exit_codes="0 planned, 1 error, 3 blocked (with --fail-on blocked), 4 refused by policy, 64 usage",
)
APPLY_EPILOG = epilog(
    examples=[
        "fleetctl ci apply -f fleets/prod.yaml --address http://ray-head:8265",
        "fleetctl ci apply prod.fleetplan",
    ],
    exit_codes="as for apply: 0 ready, 1 error, 3 partial, 4 refused by policy, 5 locked, 6 stale plan, 64 usage",
)

ForgeOption = Annotated[ForgeName, typer.Option("--forge", envvar="FLEETCTL_FORGE", help="Which forge to tell.")]
PlanOption = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="FILE", envvar="FLEETCTL_PLAN", show_default=False, dir_okay=False,
                 help="Also save the plan for `apply FILE`; mode 0600. It holds env values."),
]
PlanArgument = Annotated[
    str | None,
    typer.Argument(metavar="PLAN", envvar="FLEETCTL_PLAN", show_default=False, help="A plan saved by `ci review`."),
]
InventoryOption = Annotated[
    str | None,
    typer.Option("--inventory", metavar="FILE", envvar="FLEETCTL_INVENTORY", show_default=False,
                 help="Read this inventory document instead of the cluster."),
]
BaseOption = Annotated[
    str | None,
    typer.Option("--base", metavar="REV", envvar="FLEETCTL_BASE", show_default=False,
                 help="What the change is measured against. [default: where the pull request starts]"),
]
ChangeOption = Annotated[
    int | None,
    typer.Option("--pull-request", metavar="N", envvar="FLEETCTL_PULL_REQUEST", show_default=False,
                 help="The pull or merge request to comment on, where the job is not told."),
]
CommentOption = Annotated[
    bool, typer.Option("--comment/--no-comment", envvar="FLEETCTL_COMMENT", help="Keep a comment on the change."),
]
FailOnOption = Annotated[
    FailOn,
    typer.Option("--fail-on", envvar="FLEETCTL_FAIL_ON",
                 help="What fails the job beside errors: a policy that refuses, or also replicas without a place."),
]
ForceOption = Annotated[
    bool,
    typer.Option("--force", envvar="FLEETCTL_FORCE", help="Lift the thresholds of spec.policy; protected stays so."),
]
LockTimeoutOption = Annotated[
    float,
    typer.Option("--lock-timeout", metavar="DURATION", envvar="FLEETCTL_LOCK_TIMEOUT", parser=duration,
                 show_default=False, help="How long to wait while another apply of this fleet runs. [default: 10m]"),
]


def register(app: typer.Typer) -> None:
    """Add the command group."""
    group = typer.Typer(
        rich_markup_mode=None, help="Validate, review or apply a change in a CI job.", epilog=GROUP_EPILOG)
    group.command("validate", epilog=VALIDATE_EPILOG)(validate)
    group.command("review", epilog=REVIEW_EPILOG)(review)
    group.command("apply", epilog=APPLY_EPILOG)(apply)
    app.add_typer(group, name="ci")


def validate(
    files: OptionalFilesOption = None,
    report: ReportOption = None,
    forge: ForgeOption = ForgeName.AUTO,
) -> int:
    """Check fleet files, and tell the forge.

    It gets annotations, a summary page and outputs; no cluster is asked. Files may also stand in FLEETCTL_FILES and
    reports in FLEETCTL_REPORTS, one a line.
    """
    from fleetctl.cli.ci_validate import run_validate
    from fleetctl.cli.planning import Where
    from fleetctl.forge.detect import find_forge

    return run_validate(Job(
        files=_lines(files, "FLEETCTL_FILES"), reports=_lines(report, "FLEETCTL_REPORTS"), where=Where(),
        forge=find_forge(os.environ, forge),
    ))


def review(
    files: OptionalFilesOption = None,
    address: AddressOption = None,
    namespace: NamespaceOption = None,
    inventory: InventoryOption = None,
    base: BaseOption = None,
    out: PlanOption = None,
    report: ReportOption = None,
    fail_on: FailOnOption = FailOn.POLICY,
    force: ForceOption = False,
    comment: CommentOption = True,
    pull_request: ChangeOption = None,
    forge: ForgeOption = ForgeName.AUTO,
) -> int:
    """Plan a change, and tell the forge.

    It gets a comment that is kept up to date, a summary page, annotations and outputs. Nothing is changed in the
    cluster. Files may also stand in FLEETCTL_FILES and reports in FLEETCTL_REPORTS, one a line. Without a forge it
    prints the plan.
    """
    from fleetctl.cli.ci_review import run_review
    from fleetctl.cli.planning import Where
    from fleetctl.forge.detect import find_forge

    job = Job(
        files=_lines(files, "FLEETCTL_FILES"), where=Where(inventory, address, namespace), base=base, out=out,
        reports=_lines(report, "FLEETCTL_REPORTS"), fail_on=fail_on, force=force, comment=comment,
        forge=find_forge(os.environ, forge, number=pull_request),
    )
    return run_review(job)


def apply(
    plan_file: PlanArgument = None,
    files: OptionalFilesOption = None,
    address: AddressOption = None,
    namespace: NamespaceOption = None,
    force: ForceOption = False,
    lock_timeout: LockTimeoutOption = 600,
    forge: ForgeOption = ForgeName.AUTO,
) -> int:
    """Apply what was merged, and tell the forge.

    Nothing is asked. A saved plan is applied exactly and once; where what it relies on has moved it is refused with 6.
    Else the files are planned and applied; they may also stand in FLEETCTL_FILES, one a line.
    """
    from fleetctl.cli.ci_apply import refuse_what_is_for_reviews, run_apply
    from fleetctl.cli.planning import Where
    from fleetctl.forge.detect import find_forge

    refuse_what_is_for_reviews(os.environ)
    job = Job(
        files=() if plan_file else _lines(files, "FLEETCTL_FILES"), where=Where(None, address, namespace),
        force=force, forge=find_forge(os.environ, forge),
    )
    return run_apply(job, plan_file, lock_timeout)


def _lines(given: list[str] | None, variable: str) -> tuple[str, ...]:
    """Return what the flag was given, else the lines of the variable."""
    told = os.environ.get(variable, "").splitlines()
    return tuple(given or (line.strip() for line in told if line.strip()))
