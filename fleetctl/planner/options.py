"""The inputs of a plan besides fleet and inventory: flags, and facts that only the caller knows (no clock in here).

And the gate before plan and apply: nothing is done on an incomplete inventory.

Also the command that makes a plan again with the same options: the hint when it is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from shlex import quote
from typing import TYPE_CHECKING

from fleetctl.documents.base import as_datetime
from fleetctl.documents.names import did_you_mean, flag_with, with_key
from fleetctl.documents.selector import LabelSelector, parse_label_selector
from fleetctl.errors import FleetctlError, InventoryError

if TYPE_CHECKING:
    from fleetctl.documents.inventory import Inventory
    from fleetctl.documents.plan import GitFacts, Plan  # slow to import, and `status` does not need it

USUAL_EXPIRY_S = 24 * 3600


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """Flags of a plan: models to plan by key or label, keys to leave out, the former name of a renamed fleet, whether
    to lift the thresholds of its policy, or its cooldown; and `files` as given with -f, to make the plan again.
    """

    targets: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    adopt_from: str | None = None
    force: bool = False
    files: tuple[str, ...] = ()
    selector: LabelSelector | None = None
    ignore_cooldown: bool = False
    held_back: frozenset[str] = frozenset()
    """The spec hashes of variants that have just failed in the apply for which this plan is made: it creates none."""

    def left_out(self, key: str, labels: Mapping[str, str]) -> str | None:
        """Return why a model is not planned, or None if it is."""
        if key in self.excludes:
            return "excluded by --exclude"
        if self.targets and key not in self.targets:
            return "left out: not a target of this plan"
        if self.selector and not self.selector.matches(labels):
            return "left out: not chosen by --selector"
        return None


def options_of(plan: Plan) -> PlanOptions:
    """Return the flags that a plan was made with."""
    flags = plan.options
    selector = parse_label_selector(flags.selector) if flags.selector else None
    return PlanOptions(tuple(flags.targets), tuple(flags.excludes), flags.adopt_from, flags.force, tuple(flags.files),
                       selector, flags.ignore_cooldown)


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """Facts recorded in a plan. `expires_at` is RFC 3339, UTC."""

    tool_version: str
    git: GitFacts | None = None
    expires_at: str | None = None
    namespace: str = "fleet"
    address: str | None = None


def with_keys(options: PlanOptions, models: Mapping[str, Mapping[str, str]]) -> PlanOptions:
    """Return the options with a model's key in place of its checkpoint; `models` = labels by key.

    Raises FleetctlError if a flag chooses a model that the fleet file does not have.
    """
    targets, excludes = _keys("--target", options.targets, models), _keys("--exclude", options.excludes, models)
    if options.selector:
        chosen_by(options.selector, models)
    return replace(options, targets=targets, excludes=excludes)


def chosen_by(selector: LabelSelector, models: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return the keys of the models that a selector matches; raises FleetctlError if none. `models` = labels by key."""
    chosen = [key for key, labels in models.items() if selector.matches(labels)]
    if not chosen:
        pairs = sorted({f"{key}={value}" for labels in models.values() for key, value in labels.items()})
        raise FleetctlError(f"--selector {selector.text}: no model of the fleet file has such labels",
                            hint=f"the file has the labels {', '.join(pairs[:20])}" if pairs else "no model has labels")
    return chosen


def _keys(flag: str, named: Sequence[str], keys: Collection[str]) -> tuple[str, ...]:
    named_keys = tuple(with_key(name, keys) for name in named)
    for key in named_keys:
        if key not in keys:
            hint = did_you_mean(key, keys) or "see the model keys of the file with `fleetctl plan`"
            raise FleetctlError(f"{flag} {key}: the fleet file has no such model", hint=hint)
    return named_keys


def require_complete(inventory: Inventory) -> None:
    """Raise InventoryError, with everything that went wrong, if the inventory is not complete."""
    if inventory.complete:
        return
    problems = "; ".join(inventory.warnings) or "no reason given"
    raise InventoryError(f"the inventory from {inventory.source} is not complete: {problems}",
                         hint="nothing is planned on a partial inventory; "
                              "`fleetctl inventory` shows what could be read")


def file_flags(files: Sequence[str]) -> str:
    """Return the flags that name these fleet files in a command, quoted for a shell; `-f FLEET` if none is known."""
    return " ".join(f"-f {quote(file)}" for file in files or ["FLEET"])


def replan_command(plan: Plan, saved_as: str) -> str:
    """Return the command, quoted for a shell; `saved_as` = the file of the plan."""
    options = plan.options
    seconds = valid_for_s(plan)
    flags: list[tuple[str, Sequence[str | None]]] = [
        ("-f", options.files or ["FLEET"]), ("--target", options.targets), ("--exclude", options.excludes),
        ("--selector", [options.selector]), ("--adopt-from", [options.adopt_from]),
        # always explicit: otherwise the fleet file or the environment may choose another cluster
        ("--namespace", [plan.fleet.namespace]), ("--address", [plan.inventory.address]),
        ("--base", [plan.change.base.name if plan.change else None]),
        ("--expires", [None if seconds in {None, USUAL_EXPIRY_S} else f"{seconds}s"]),
    ]
    parts = [flag_with(flag, value) for flag, values in flags for value in values if value]
    parts += ["--force"] * options.force + ["--ignore-cooldown"] * options.ignore_cooldown
    return " ".join(["fleetctl plan", *parts, flag_with("--out", saved_as)])


def valid_for_s(plan: Plan) -> int | None:
    """Return for how many seconds after its inventory the plan is valid; None = it never expires."""
    if plan.expires_at is None:
        return None
    return int((as_datetime(plan.expires_at) - as_datetime(plan.inventory.observed_at)).total_seconds())


def has_expired(plan: Plan, now: str) -> bool:
    """Return whether the plan has expired at `now` (RFC 3339 with a zone)."""
    return plan.expires_at is not None and as_datetime(now) > as_datetime(plan.expires_at)
