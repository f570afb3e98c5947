"""The one way to make a plan, for `plan`, `apply` and `ci`: read the inventory, add git, time and version, and plan.

For `plan --base` the base is planned on the same inventory, which shows the effect of the change of the files alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.documents.base import as_datetime
from fleetctl.documents.difference import Revision
from fleetctl.documents.inventory import Inventory
from fleetctl.documents.plan import GitFacts, Plan
from fleetctl.documents.quantity import count_of
from fleetctl.errors import RevisionError
from fleetctl.fleetfile.load import LoadedFleet
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.fleetfile.sources import STDIN_NAME
from fleetctl.inventory.snapshot import Snapshot
from fleetctl.planner.options import USUAL_EXPIRY_S, PlanFacts, PlanOptions
from fleetctl.review.git_discovery import checkout_of, find_git_dir
from fleetctl.version import __version__
from fleetctl.workflow.cluster import inventory_source, read, with_cold_selectors
from fleetctl.workflow.contexts import resolve_namespace
from fleetctl.workflow.invocation import Invocation, Where

if TYPE_CHECKING:
    from fleetctl.documents.answers import PlacementMap
    from fleetctl.inventory.dashboard import InventorySource
    from fleetctl.review.inputs import Side
    from fleetctl.workflow.spec_changes import Changes

Adjust = Callable[[Inventory], Inventory]
"""Changes the inventory before it is planned on."""


@dataclass(frozen=True, slots=True)
class PlannedFleet:
    """A plan and its inputs. Only for display: `changes` = how outdated replicas differ from the file, and the
    `autoscaler`'s reports about requested nodes.
    """

    fleet: ResolvedFleet
    inventory: Inventory
    options: PlanOptions
    facts: PlanFacts
    plan: Plan
    changes: Changes = field(default_factory=dict)
    autoscaler: Sequence[str] = ()

    def shown(self) -> Plan:
        """Return the plan with the additions for display. Its id stays that of the plan itself."""
        if not self.changes and not self.autoscaler:
            return self.plan
        from fleetctl.workflow.spec_changes import add_changes

        return self.plan.model_copy(update={"drift": add_changes(self.plan.drift, self.changes),
                                            "autoscaler": list(self.autoscaler)})

    def map(self) -> PlacementMap:
        """Return the map with the plan's new replicas."""
        from fleetctl.planner.questions.occupancy import placement_map  # NumPy
        from fleetctl.planner.questions.scenario import Scenario

        return placement_map(Scenario(self.fleet, self.inventory, self.options.adopt_from), self.plan)


def plan_fleet(
    invocation: Invocation, loaded: LoadedFleet, options: PlanOptions, where: Where, *,
    base: Side | None = None, expires_s: float = USUAL_EXPIRY_S, adjust: Adjust | None = None,
    git: GitFacts | None = None,
) -> PlannedFleet:
    """Read the inventory and plan the fleet on it; with a `base` the plan has the effect of the change alone.

    `git` = the commit of the files, if they are not on disk. Warnings go to standard error. Raises FleetFileError for
    a fleet with errors, InventoryError for an incomplete inventory, UsageError if --target or --exclude name no model.
    """
    fleet = loaded.sound()
    with inventory_source(invocation, where, fleet.cluster) as source:
        def plan() -> PlannedFleet:
            return plan_on(invocation, source, fleet, options, where, expires_s, adjust, git)

        planned = plan()
        if not isinstance(source, Snapshot):
            from fleetctl.inventory.autoscaler import autoscaler_news, sums_caught_up  # the client
            from fleetctl.workflow.spec_changes import look_up_changes  # the history of applies

            client = source.client
            if planned.plan.blocked and sums_caught_up(client, planned.inventory, lambda: invocation.say(
                    "note", "reading the cluster again: Ray's sums of what is in use are some seconds old")):
                planned = plan()
            planned = replace(planned, changes=look_up_changes(client, fleet, planned.plan.drift),
                              autoscaler=autoscaler_news(client) if planned.plan.waits_for_nodes else ())
    for warning in planned.inventory.warnings:
        invocation.say("warning", warning)
    return planned if base is None else replace(planned, plan=_with_change(invocation, base, loaded, planned))


def expiry(observed_at: str, after_s: float = USUAL_EXPIRY_S) -> str | None:
    """Return when a plan made at `observed_at` (RFC 3339) expires; None for an invalid time."""
    try:
        return (as_datetime(observed_at) + timedelta(seconds=int(after_s))).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError):  # OverflowError: the end of the calendar
        return None


def plan_on(
    invocation: Invocation, source: InventorySource, fleet: ResolvedFleet, options: PlanOptions, where: Where,
    expires_s: float, adjust: Adjust | None = None, git: GitFacts | None = None,
) -> PlannedFleet:
    """Read the inventory from `source` and plan the fleet on it, once; warnings stay in the inventory."""
    def say_once(why: str) -> None:
        if why not in invocation.warned:
            invocation.warned.add(why)
            invocation.say("note", f"the plan names no commit: {why}")

    seen = read(invocation, with_cold_selectors(source, fleet))
    seen = adjust(seen) if adjust else seen
    facts = PlanFacts(
        tool_version=__version__,
        git=git or git_facts([file.path for file in fleet.files], invocation.environ, say_once),
        expires_at=expiry(seen.observed_at, expires_s),
        namespace=resolve_namespace(invocation, where, fleet.cluster),
        address=seen.cluster.address,
    )
    with invocation.working(f"planning {count_of(len(fleet.models), 'model')}"):
        if (make := invocation.make_plan) is None:
            from fleetctl.planner.plan import make_plan  # loads NumPy, which --help and an attached apply do not need

            make = make_plan
        return PlannedFleet(fleet, seen, options, facts, make(fleet, seen, options, facts))


def git_facts(
    files: Sequence[str], environ: Mapping[str, str], unknown: Callable[[str], None] = lambda _: None
) -> GitFacts | None:
    """Return commit and branch of the first file's repository, or None if there is none or all files are standard
    input; `dirty` covers the fleet files alone. Reads only and runs no program that the repository configures. Any
    failure means "unknown", and `unknown` is called with the reason.
    """
    paths = [Path(file).absolute() for file in files if file != STDIN_NAME]
    if not paths or checkout_of(str(paths[0]), environ) is None:
        return None
    from fleetctl.review.git_command import Git  # outside a repository no git is needed
    from fleetctl.review.git_discovery import WITHOUT_GIT

    try:
        git = Git(find_git_dir(str(paths[0]), environ), environ, timeout_s=5.0)
        answer = git.run("status", "--porcelain=v2", "--branch", "--no-ahead-behind", "--no-renames",
                         "--untracked-files=all", "--ignored", "--ignore-submodules=all",
                         "--", *(str(path) for path in paths))
    except RevisionError as error:
        hint = f"; {error.hint}" if error.hint and error.hint != WITHOUT_GIT else ""
        unknown(f"{error.message}{hint}")
        return None
    if answer.returncode:
        unknown(f"git status: {answer.stderr.decode(errors='backslashreplace').strip() or 'it failed'}")
        return None
    lines = answer.stdout.decode(errors="backslashreplace").splitlines()
    headers = dict(line[2:].split(" ", 1) for line in lines if line.startswith("# ") and " " in line[2:])
    commit, branch = headers.get("branch.oid", ""), headers.get("branch.head")
    if not commit or commit == "(initial)":
        return None
    return GitFacts(commit=commit, branch=None if branch == "(detached)" else branch,
                    dirty=any(not line.startswith("# ") for line in lines))


def _with_change(invocation: Invocation, base: Side, loaded: LoadedFleet, planned: PlannedFleet) -> Plan:
    """Return the plan with the effect of the change since the base (see review/inputs.py:load_base) alone.

    A base with errors, which the change may be meant to fix, gives a warning and the plan as it is.
    """
    from fleetctl.review.compare import differences, written  # comparing two fleets
    from fleetctl.review.inputs import WORKING_TREE, Side
    from fleetctl.workflow.base_plan import change_caused, marked_new, with_change

    if base.problems:
        invocation.say("warning", why_unknown(base))
        return planned.plan
    head = Side(Revision(name=WORKING_TREE, files=list(planned.options.files)), planned.fleet, loaded.documents)
    changes = list(differences(written(base), written(head)))
    # planning takes time, and most pull requests change no fleet
    keys, former = ([model.key for model in side.fleet.models] if side.fleet else [] for side in (head, base))
    before = planned.plan if not changes and keys == former else _plan_of_base(invocation, base, planned)
    plan = planned.plan
    if plan.file_warnings:
        former_warnings = base.fleet.warnings if base.fleet else ()
        plan = plan.model_copy(update={"file_warnings": marked_new(plan.file_warnings, former_warnings)})
    change = change_caused(before, plan, changes, base.revision)
    if planned.fleet.has_prices:
        from fleetctl.planner.placement.prices import added_beyond  # for fleets with prices

        adds = added_beyond(before, plan, planned.fleet, planned.inventory)
        change = change.model_copy(update={"adds": adds})
    return with_change(plan, change)


def why_unknown(base: Side) -> str:
    """Return why the effect of the change alone is unknown: the base has errors."""
    from fleetctl.render.report.of_diff import revision_text

    return (f"the fleet at {revision_text(base.revision)} cannot be read ({count_of(len(base.problems), 'problem')}), "
            "so the effect of the change alone is unknown")


def _plan_of_base(invocation: Invocation, base: Side, planned: PlannedFleet) -> Plan | None:
    """Return the plan of the base on the same inventory; None if there was no fleet yet."""
    from fleetctl.planner.plan import make_plan  # NumPy
    from fleetctl.render.report.of_diff import revision_text

    if base.fleet is None:
        return None
    # the flags, applied to the models of the base: a model that --target does not name stays unplanned
    left_out = planned.options.left_out
    excludes = sorted(model.key for model in base.fleet.models if left_out(model.key, model.labels) is not None)
    options = replace(planned.options, targets=(), selector=None, excludes=tuple(excludes))
    with invocation.working(f"planning the fleet at {revision_text(base.revision)}"):
        # without its pilots: all that they would let start is what the base creates
        fleet = replace(base.fleet, policy=base.fleet.policy.model_copy(update={"pilot": None}))
        made = make_plan(fleet, planned.inventory, options, planned.facts)
    if base.fleet.cluster.namespace != planned.facts.namespace == planned.fleet.cluster.namespace:
        # this inventory does not count the base's replicas, which run in another namespace, so the base creates none
        rows = [row.model_copy(update={"create": 0, "blocked": 0}) for row in made.models]
        return made.model_copy(update={"models": rows})
    return made
