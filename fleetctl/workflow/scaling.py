"""`scale` and `deploy`: the number of replicas of one model comes from the command line, the rest from the file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fleetctl.documents.base import is_model_key
from fleetctl.documents.names import checkpoint_of, did_you_mean, flag_with, with_key
from fleetctl.errors import FleetctlError
from fleetctl.fleetfile.guess import dns_label_meant
from fleetctl.fleetfile.load import LoadedFleet, inspect_fleet
from fleetctl.fleetfile.resolved import ResolvedFleet, ResolvedModel, in_variants
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
    of_each: Sequence[int] = ()
    """The number of live ones of each variant."""

    def to(self, replicas: int, *, dedicated: bool = False) -> LoadedFleet:
        """Return the fleet with this number of replicas of the model, and as in `ResolvedModel`.

        The minimums of variants ask for no more than that: the number was given by hand.
        """
        def at_most(model: ResolvedModel) -> ResolvedModel:
            left, ways = max(0, replicas - self.live), list[ResolvedModel]()
            for one, live in zip(model.variants, self.of_each, strict=True):
                lacking = min(left, max(0, one.least - live))
                ways.append(replace(one, least=min(one.least, live + lacking)))
                left -= lacking
            return in_variants(ways, model.source)

        return self.changed(lambda model: (at_most(model) if model.variants else model).with_changes(
            replicas=replicas, surge=0, dedicated=dedicated))

    def in_update(self, surge: int) -> LoadedFleet:
        """Return the fleet for an update of the model, with at most `surge` replicas beyond its target at a time."""
        return self.changed(lambda model: model.with_changes(surge=surge))

    def changed(self, change: Callable[[ResolvedModel], ResolvedModel]) -> LoadedFleet:
        """Return the fleet with `change` made to the model."""
        fleet = self.loaded.sound()
        changed = {model.key: change(model) for model in fleet.models if model.key == self.model}
        return replace(self.loaded, fleet=fleet.only_creating(changed))


def model_of(fleet: ResolvedFleet, name: str) -> ResolvedModel:
    """Return a model of the fleet file by its key, or by the checkpoint that the key holds.

    Raises FleetctlError when the file has no such model, with the command that writes an entry, or several.
    """
    models = {model.key: model for model in fleet.models}
    model = models.get(with_key(name, models))
    if model is None:
        file = f"{dns_label_meant((checkpoint_of(name) or name).rpartition('/')[2]) or 'model'}.yaml"
        init = f"fleetctl init {file} --fleet {fleet.name} {flag_with('--model', name)}"
        entry = f"`{init}` writes an entry into a file of its own; then add -f {file}" if is_model_key(name) else None
        hints = (did_you_mean(name, models), entry)
        raise FleetctlError(f"the fleet file has no model {name}", hint=" ".join(filter(None, hints)) or None)
    return model


def look_up(invocation: Invocation, files: Sequence[str], model: str, where: Where) -> Scaling:
    """Return the model of the fleet file and its live count; raises FleetctlError as `model_of` does."""
    loaded = inspect_fleet(files, stdin=invocation.stdin)
    fleet = loaded.sound()
    in_file = model_of(fleet, model)
    seen = read_from(invocation, where, fleet)
    require_complete(seen)
    state = sort_out(seen, fleet.name, [in_file.key]).models[in_file.key]
    of_each = state.live_of_each(in_file) if in_file.variants else ()
    return Scaling(loaded, in_file.key, in_file.asked_for, len(state.live), of_each)
