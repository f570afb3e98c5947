"""`scale` and `deploy`: the number of replicas of one model comes from the command line, the rest from the file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fleetctl.documents.nearest import did_you_mean
from fleetctl.errors import FleetctlError
from fleetctl.fleetfile.load import LoadedFleet, inspect_fleet
from fleetctl.fleetfile.resolved import ResolvedFleet, ResolvedModel
from fleetctl.planner.live import sort_out
from fleetctl.planner.options import require_complete
from fleetctl.workflow.cluster import read_from
from fleetctl.workflow.invocation import Invocation, Where


@dataclass(frozen=True, slots=True)
class Scaling:
    """A model of the fleet file, the number of replicas in the file, and the number of live ones."""

    loaded: LoadedFleet
    model: str
    wanted: int
    live: int

    def to(self, replicas: int, surge: int = 0, *, dedicated: bool = False) -> LoadedFleet:
        """Return the fleet with this number of replicas of the model; the other parameters as in `ResolvedModel`.

        Weights on disks are left to the next apply.
        """
        fleet = self.loaded.sound()
        models = tuple(replace(model, replicas=replicas, surge=surge, reload=(), dedicated=dedicated, cold=None)
                       if model.key == self.model else replace(model, cold=None) for model in fleet.models)
        return replace(self.loaded, fleet=replace(fleet, models=models))


def model_of(fleet: ResolvedFleet, key: str) -> ResolvedModel:
    """Return a model of the fleet file; raises FleetctlError when the file has no such model."""
    found = next((model for model in fleet.models if model.key == key), None)
    if found is None:
        raise FleetctlError(f"the fleet file has no model {key}",
                            hint=did_you_mean(key, [model.key for model in fleet.models])
                            or "its shape comes from the fleet file: add it there first")
    return found


def look_up(invocation: Invocation, files: Sequence[str], model: str, where: Where) -> Scaling:
    """Return the model of the fleet file and its live count; raises FleetctlError when the file has no such model."""
    loaded = inspect_fleet(files, stdin=invocation.stdin)
    fleet = loaded.sound()
    found = model_of(fleet, model)
    seen = read_from(invocation, where, fleet)
    require_complete(seen)
    live = len(sort_out(seen, fleet.name, [model]).models[model].live)
    return Scaling(loaded, model, found.replicas, live)
