"""The environment of one run of the command line; `cli/` reads it from this process and passes it down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
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
    """Environment, home folder, clock (RFC 3339, UTC), standard input, labeled messages, count of interrupts.

    `context` is --context, as given. `working` shows an activity, such as "planning", while its block runs.
    `make_plan` replaces the direct call of the planner. `warned` = what a warning was given about: once is enough.
    `reads_only` = whatever is run, the cluster gets no request but GETs.
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
    warned: set[str] = field(default_factory=set)
    reads_only: bool = False


@dataclass(frozen=True, slots=True)
class Where:
    """Where the inventory comes from: --inventory, --address and --namespace, as given."""

    inventory: str | None = None
    address: str | None = None
    namespace: str | None = None
