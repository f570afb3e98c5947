"""What shapes a plan beside fleet and inventory: flags, and facts that only the caller can know (no clock in here)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from fleetctl.documents.nearest import did_you_mean
from fleetctl.documents.plan import GitFacts
from fleetctl.errors import UsageError


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """Flags of a plan: model keys to plan alone or to leave out, the former name of a renamed fleet, whether a person
    lifts the thresholds of its policy; and where the fleet was read from, as -f had it, to make the plan again.
    """

    targets: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    adopt_from: str | None = None
    force: bool = False
    files: tuple[str, ...] = ()

    def left_out(self, key: str) -> str | None:
        """Return why a model is not planned, or None when it is."""
        if key in self.excludes:
            return "excluded by --exclude"
        if self.targets and key not in self.targets:
            return "left out: not named by --target"
        return None


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """Facts recorded in a plan. `expires_at` is RFC 3339, UTC."""

    tool_version: str
    git: GitFacts | None = None
    expires_at: str | None = None
    namespace: str = "fleet"
    address: str | None = None


def check_options(options: PlanOptions, keys: Collection[str]) -> None:
    """Raise UsageError when a flag names a model that the fleet file does not have."""
    _check("--target", options.targets, keys)
    _check("--exclude", options.excludes, keys)


def _check(flag: str, named: Sequence[str], keys: Collection[str]) -> None:
    for key in named:
        if key not in keys:
            hint = did_you_mean(key, keys) or "see the model keys of the file with `fleetctl plan`"
            raise UsageError(f"{flag} {key}: the fleet file has no such model", hint=hint)
