"""What one run of the command line brings along; `cli/` reads it from this process and hands it down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.documents.inventory import Inventory
    from fleetctl.documents.plan import Plan
    from fleetctl.fleetfile.resolved import ResolvedFleet
    from fleetctl.planner.options import PlanFacts, PlanOptions

    MakePlan = Callable[[ResolvedFleet, Inventory, PlanOptions, PlanFacts], Plan]

ADDRESS_VARIABLE = "FLEETCTL_ADDRESS"
NAMESPACE_VARIABLE = "FLEETCTL_NAMESPACE"
CONTEXT_VARIABLE = "FLEETCTL_CONTEXT"


@dataclass(frozen=True, slots=True)
class Invocation:
    """Environment, home folder, clock (RFC 3339, UTC), standard input, labelled messages, count of interrupts.

    `context` is --context, as given. `working` shows what is being done, such as "planning", as long as its block runs.
    `make_plan` = another way to call the planner than at once.
    """

    environ: Mapping[str, str]
    home: Path
    now: Callable[[], str]
    stdin: Callable[[], bytes]
    say: Callable[[str, str], None]
    interrupts: Callable[[], int]
    context: str | None = None
    working: Callable[[str], AbstractContextManager[object]] = nullcontext
    make_plan: MakePlan | None = None


@dataclass(frozen=True, slots=True)
class Where:
    """Where the inventory comes from: --inventory, --address and --namespace, as given."""

    inventory: str | None = None
    address: str | None = None
    namespace: str | None = None
