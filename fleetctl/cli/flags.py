"""The flags that several commands share: one spelling, one meaning, one help text.

A command takes one by annotating a parameter; its own signature says whether it is required and its default.
Durations arrive as seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic_core import PydanticCustomError

from fleetctl.cli.commands import MadeBy
from fleetctl.cli.completion import complete_labels, complete_model_keys
from fleetctl.documents.label_selector import LabelSelector, parse_label_selector
from fleetctl.documents.quantity import DURATION_ALLOWED, parse_duration
from fleetctl.errors import UsageError
from fleetctl.planner.options import PlanOptions
from fleetctl.workflow.invocation import Where

OutputFormat = Literal["table", "json"]
"""What a command that shows something prints."""


def duration(value: str | float) -> float:
    """Turn a flag such as `90s` or `1h30m` into seconds; a default that is already a number passes through."""
    if isinstance(value, (int, float)):
        return float(value)
    try:
        return float(parse_duration(value))
    except PydanticCustomError as error:
        longer = error.type == "absurd_quantity"
        raise typer.BadParameter(f"{value!r} is {'longer than 30d' if longer else f'not {DURATION_ALLOWED}'}") from None


def expiry_duration(value: str | float) -> float:
    """Like `duration`, for a time of validity: at least a second."""
    seconds = duration(value)
    if seconds < 1:
        raise typer.BadParameter(f"{value!r} is too short; at least 1s")
    return seconds


def label_selector(value: str) -> LabelSelector:
    """Turn a flag such as `team=nlp` into a selector."""
    try:
        return parse_label_selector(value)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def refuse_selector_without(files: list[str] | None, selector: LabelSelector | None) -> None:
    """Raise UsageError for --selector without a fleet file, which has the labels."""
    if selector and not files:
        raise UsageError("--selector chooses models of a fleet file by their labels", hint="give the file with -f")


def names_fleet(argument: str) -> bool:
    """Return whether a plain argument is fleet files, where it may also be something else."""
    return argument.endswith((".yaml", ".yml", "/"))


def fleet_name(given: str) -> str:
    """Return what --fleet gives; raises UsageError where no fleet can be called so."""
    from fleetctl.fleetfile.guess import dns_label_meant  # YAML, which few commands with flags need

    meant = dns_label_meant(given)
    if meant != given:
        raise UsageError(f"--fleet {given}: the name of a fleet is a DNS label",
                         hint=f"did you mean {meant or 'prod'}?")
    return given


def option(*names: str, metavar: str, help: str, **settings: Any) -> Any:  # noqa: A002, ANN401  typer's own
    """Return a flag with a value, whose default, if it has one, is in its help text."""
    return typer.Option(*names, metavar=metavar, help=help, show_default=False, **settings)


FILES_HELP = "Fleet file, a folder of them, or - for standard input; repeatable."
_PLAIN = "A plain argument is one, too."
_FLEET_FILES = option("--file", "-f", metavar="PATH", help=f"{FILES_HELP} {_PLAIN}")
Files = Annotated[list[str], _FLEET_FILES]
OptionalFiles = Annotated[list[str] | None, _FLEET_FILES]
DISK_FILES_HELP = "Fleet file, or a folder of them; repeatable."
_DISK_FILES = option("--file", "-f", metavar="PATH", help=f"{DISK_FILES_HELP} {_PLAIN}")
DiskFiles = Annotated[list[str], _DISK_FILES]
"""Those of a command that takes none from standard input."""
OptionalDiskFiles = Annotated[list[str] | None, _DISK_FILES]
_FLAGGED_FILES = option("--file", "-f", metavar="PATH", help=FILES_HELP)
FlaggedFiles = Annotated[list[str], _FLAGGED_FILES]
"""The fleet files of a command whose plain argument is something else."""
OptionalFlaggedFiles = Annotated[list[str] | None, _FLAGGED_FILES]
ClusterFiles = Annotated[list[str] | None, option(
    "--file", "-f", metavar="PATH", help="Fleet file that names the cluster and its namespace; repeatable.")]
Address = Annotated[str | None, option(
    "--address", metavar="URL",
    help="Ray dashboard, as http://ray-head:8265. [env var: FLEETCTL_ADDRESS; else see --context]")]
Namespace = Annotated[str | None, option(
    "--namespace", metavar="NAME",
    help="Ray namespace of the replicas. [env var: FLEETCTL_NAMESPACE; else spec.cluster.namespace, else fleet]")]
OwnFiles = Annotated[list[str] | None, option(
    "--file", "-f", metavar="PATH",
    help="Fleet file that names the cluster and its namespace; show only its replicas. Repeatable.")]
Inventory = Annotated[str | None, option(
    "--inventory", metavar="FILE", help="Read this inventory document instead of the cluster; - for standard input.")]


def _cluster(address: Address = None, namespace: Namespace = None) -> Where:
    return Where(None, address, namespace)


def _source(address: Address = None, namespace: Namespace = None, inventory: Inventory = None) -> Where:
    return Where(inventory, address, namespace)


Cluster = Annotated[Where, MadeBy(_cluster)]
Source = Annotated[Where, MadeBy(_source)]
"""The cluster, or the document of --inventory."""
Format = Annotated[OutputFormat, typer.Option("--format", help="What to print on standard output.")]
Out = Annotated[Path | None, option(
    "--out", "-o", metavar="FILE", dir_okay=False,
    help="Also save the plan for `apply FILE`; mode 0600, replaced atomically.")]
DetailedExitCode = Annotated[bool, typer.Option(
    "--detailed-exitcode",
    help="Exit 0 for nothing to do, 2 for changes, 3 if anything is blocked, 4 if a policy refuses.")]
Target = Annotated[list[str] | None, option(
    "--target", metavar="MODEL", autocompletion=complete_model_keys, help="Only this model; repeatable.")]
Exclude = Annotated[list[str] | None, option(
    "--exclude", metavar="MODEL", autocompletion=complete_model_keys, help="All but this model; repeatable.")]
Selector = Annotated[Any, option(
    "--selector", "-l", metavar="LABELS", parser=label_selector, autocompletion=complete_labels,
    help="Only models with these labels, such as team=nlp or 'team in (nlp, vision),tier!=trial'.")]
AdoptFrom = Annotated[str | None, option(
    "--adopt-from", metavar="FLEET",
    help="The fleet was called FLEET: count its replicas as ours. Needed until all of them have been replaced.")]
Force = Annotated[bool, typer.Option(
    "--force", help="Lift the thresholds of spec.policy for this run; protected models stay protected.")]
IgnoreCooldown = Annotated[bool, typer.Option(
    "--ignore-cooldown", help="Try again now what failed several times in a row; see spec.policy.cooldown.")]


def _planning(
    target: Target = None, exclude: Exclude = None, selector: Selector = None, adopt_from: AdoptFrom = None,
    force: Force = False, ignore_cooldown: IgnoreCooldown = False,
) -> PlanOptions:
    return PlanOptions(tuple(target or ()), tuple(exclude or ()), adopt_from, force, (), selector, ignore_cooldown)


Planning = Annotated[PlanOptions, MadeBy(_planning)]
"""What shapes a plan; its files are a flag of their own."""
Base = Annotated[str | None, option(
    "--base", metavar="REV",
    help="Also show what the change since this git revision causes alone; REV... = since this branch left it.")]
Expires = Annotated[float, option(
    "--expires", metavar="DURATION", parser=expiry_duration,
    help="How long a saved plan stays valid, from its inventory on; at most 30d. [default: 24h]")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only list what would be done.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Parallelism = Annotated[int, typer.Option(
    "--parallelism", metavar="N", min=1, max=1000, help="How many replicas start at the same time.")]
LockTimeout = Annotated[float, option(
    "--lock-timeout", metavar="DURATION", parser=duration,
    help="How long to wait while another apply of this fleet runs. [default: 0s]")]
WaitTimeout = Annotated[float | None, option(
    "--wait-timeout", metavar="DURATION", parser=duration,
    help="How long to follow; then exit 7, while the apply continues in the cluster. [default: no limit]")]


@dataclass(frozen=True, slots=True)
class StartFlags:
    """The flags of a verb that starts replicas on a cluster. Seconds."""

    address: Address = None
    namespace: Namespace = None
    dry_run: DryRun = False
    yes: Yes = False
    force: Force = False
    ignore_cooldown: IgnoreCooldown = False
    lock_timeout: LockTimeout = 0
    wait_timeout: WaitTimeout = None

    @property
    def where(self) -> Where:
        """The cluster."""
        return Where(None, self.address, self.namespace)


Starting = Annotated[StartFlags, MadeBy(StartFlags)]
