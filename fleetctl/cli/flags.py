"""The flags shared by several commands: one spelling, one meaning, one help text.

A command takes a flag by annotating a parameter; its signature says whether the flag is required, and its default.
Durations arrive as seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic_core import PydanticCustomError

from fleetctl.cli.commands import MadeBy, not_empty
from fleetctl.cli.completion import complete_labels, complete_model_keys
from fleetctl.documents.quantity import DURATION_ALLOWED, parse_duration
from fleetctl.documents.selector import LabelSelector, parse_label_selector
from fleetctl.errors import UsageError
from fleetctl.planner.options import PlanOptions
from fleetctl.workflow.invocation import Where

OutputFormat = Literal["table", "json"]


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
    """Like `duration`, but at least one second."""
    seconds = duration(value)
    if seconds < 1:
        raise typer.BadParameter(f"{value!r} is too short; the minimum is 1s")
    return seconds


def label_selector(value: str) -> LabelSelector:
    """Turn a flag such as `team=nlp` into a selector."""
    try:
        return parse_label_selector(value)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def refuse_selector_without(files: list[str] | None, selector: LabelSelector | None) -> None:
    """Raise UsageError for --selector without a fleet file: the labels are in the file."""
    if selector and not files:
        raise UsageError("--selector chooses models of a fleet file by their labels", hint="give the file with -f")


def names_fleet(argument: str) -> bool:
    """Return whether an argument that may be something else names fleet files."""
    return argument.endswith((".yaml", ".yml", "/"))


def fleet_name(given: str) -> str:
    """Return the value of --fleet; raises UsageError if it is not a valid fleet name."""
    from fleetctl.fleetfile.guess import dns_label_meant  # YAML, which few commands need

    meant = dns_label_meant(given)
    if meant != given:
        raise UsageError(f"--fleet {given}: a fleet name must be a DNS label", hint=f"did you mean {meant or 'prod'}?")
    return given


def option(*names: str, metavar: str, help: str, **settings: Any) -> Any:  # noqa: A002, ANN401  typer's own
    """Return a flag with a value; its help text names the default, if any."""
    return typer.Option(*names, metavar=metavar, help=help, show_default=False, **settings)


FILES_HELP = "Fleet file, folder of fleet files, or - for standard input; repeatable."
_PLAIN = "The -f may be omitted."
_FLEET_FILES = option("--file", "-f", metavar="PATH", help=f"{FILES_HELP} {_PLAIN}")
Files = Annotated[list[str], _FLEET_FILES]
OptionalFiles = Annotated[list[str] | None, _FLEET_FILES]
DISK_FILES_HELP = "Fleet file, or folder of fleet files; repeatable."
_DISK_FILES = option("--file", "-f", metavar="PATH", help=f"{DISK_FILES_HELP} {_PLAIN}")
DiskFiles = Annotated[list[str], _DISK_FILES]
"""The fleet files of a command that takes none from standard input."""
OptionalDiskFiles = Annotated[list[str] | None, _DISK_FILES]
_FLAGGED_FILES = option("--file", "-f", metavar="PATH", help=FILES_HELP)
FlaggedFiles = Annotated[list[str], _FLAGGED_FILES]
"""The fleet files of a command whose plain arguments are something else."""
OptionalFlaggedFiles = Annotated[list[str] | None, _FLAGGED_FILES]
CLUSTER_FILES_HELP = "Fleet file that names the cluster and its namespace; repeatable."
ClusterFiles = Annotated[list[str] | None, option("--file", "-f", metavar="PATH", help=CLUSTER_FILES_HELP)]
ADDRESS_HELP = "Ray dashboard, e.g. http://ray-head:8265."
Address = Annotated[str | None, option(
    "--address", metavar="URL", callback=not_empty,
    help=f"{ADDRESS_HELP} [env var: FLEETCTL_ADDRESS; default: see --context]")]
NAMESPACE_HELP = "Ray namespace of the replicas."
Namespace = Annotated[str | None, option(
    "--namespace", metavar="NAME", callback=not_empty,
    help=f"{NAMESPACE_HELP} [env var: FLEETCTL_NAMESPACE; default: spec.cluster.namespace, else fleet]")]
OwnFiles = Annotated[list[str] | None, option(
    "--file", "-f", metavar="PATH",
    help="Fleet file that names the cluster and its namespace; shows only the replicas of its fleet. Repeatable.")]
Inventory = Annotated[str | None, option(
    "--inventory", metavar="FILE", help="Read this inventory document instead of the cluster; - for standard input.")]


def _cluster(address: Address = None, namespace: Namespace = None) -> Where:
    return Where(None, address, namespace)


def _source(address: Address = None, namespace: Namespace = None, inventory: Inventory = None) -> Where:
    return Where(inventory, address, namespace)


Cluster = Annotated[Where, MadeBy(_cluster)]
Source = Annotated[Where, MadeBy(_source)]
"""The cluster, or the document of --inventory."""
FORMAT_HELP = "Output format."
Format = Annotated[OutputFormat, typer.Option("--format", help=FORMAT_HELP)]
OUT_HELP = "Also save the plan to FILE, for `apply FILE`. It holds env values, so its mode is 0600."
Out = Annotated[Path | None, option("--out", "-o", metavar="FILE", dir_okay=False, help=OUT_HELP)]
DetailedExitCode = Annotated[bool, typer.Option(
    "--detailed-exitcode",
    help="Exit with 0 if there is nothing to do, 2 for changes, 3 if anything is blocked, 4 if a policy refuses.")]
Model = Annotated[str, typer.Argument(
    metavar="MODEL", show_default=False, autocompletion=complete_model_keys, help="A model key in the fleet file.")]
Target = Annotated[list[str] | None, option(
    "--target", metavar="MODEL", autocompletion=complete_model_keys, help="Plan only this model; repeatable.")]
Exclude = Annotated[list[str] | None, option(
    "--exclude", metavar="MODEL", autocompletion=complete_model_keys, help="Leave out this model; repeatable.")]
Selector = Annotated[Any, option(
    "--selector", "-l", metavar="LABELS", parser=label_selector, autocompletion=complete_labels,
    help="Only models with these labels, such as team=nlp or 'team in (nlp, vision),tier!=trial'.")]
AdoptFrom = Annotated[str | None, option(
    "--adopt-from", metavar="FLEET",
    help="Former name of the fleet: count its replicas as ours. Needed until all of them are replaced.")]
FORCE_HELP = "Lift the thresholds of spec.policy for this run; protected models stay protected."
Force = Annotated[bool, typer.Option("--force", help=FORCE_HELP)]
IGNORE_COOLDOWN_HELP = "Retry now what failed several times in a row; see spec.policy.cooldown."
IgnoreCooldown = Annotated[bool, typer.Option("--ignore-cooldown", help=IGNORE_COOLDOWN_HELP)]


def _planning(
    target: Target = None, exclude: Exclude = None, selector: Selector = None, adopt_from: AdoptFrom = None,
    force: Force = False, ignore_cooldown: IgnoreCooldown = False,
) -> PlanOptions:
    return PlanOptions(tuple(target or ()), tuple(exclude or ()), adopt_from, force, (), selector, ignore_cooldown)


Planning = Annotated[PlanOptions, MadeBy(_planning)]
"""The flags that shape a plan, except its files."""
Base = Annotated[str | None, option(
    "--base", metavar="REV",
    help="Also show the effect of the changes since this git revision alone; REV... = since this branch left REV.")]
Expires = Annotated[float, option(
    "--expires", metavar="DURATION", parser=expiry_duration,
    help="How long a saved plan stays valid after its inventory was read; at most 30d. [default: 24h]")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Parallelism = Annotated[int, typer.Option(
    "--parallelism", metavar="N", min=1, max=1000, help="Number of replicas that wait for Ray at the same time.")]
LOCK_TIMEOUT_HELP = "How long to wait for the fleet's lock while another run holds it."
LockTimeout = Annotated[float, option(
    "--lock-timeout", metavar="DURATION", parser=duration, help=f"{LOCK_TIMEOUT_HELP} [default: 0s]")]
WaitTimeout = Annotated[float | None, option(
    "--wait-timeout", metavar="DURATION", parser=duration,
    help="Stop following after this time, with exit code 7; the apply continues in the cluster. [default: no limit]")]


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
