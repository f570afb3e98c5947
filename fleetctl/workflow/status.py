"""The state of each replica: reading it, and the report of it, for `fleetctl status` and `fleetctl mcp`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetctl.documents.inventory import Inventory, Replica, ReplicaMember, dead_node_ids, is_live
from fleetctl.documents.names import did_you_mean, with_key
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.inventory.snapshot import Snapshot
from fleetctl.planner.failures import failed_lately, what_cools
from fleetctl.planner.live import is_outdated
from fleetctl.render.report.model import Report
from fleetctl.render.report.of_status import CardBytes, status_report
from fleetctl.workflow.cluster import absent, read
from fleetctl.workflow.invocation import Invocation

if TYPE_CHECKING:  # a document needs no client
    from fleetctl.documents.plan import Drift
    from fleetctl.inventory.dashboard import InventorySource


@dataclass(frozen=True, slots=True)
class Shown:
    """Which replicas are shown: those of this fleet, in these files, this model and these keys; None = all."""

    fleet: ResolvedFleet | None
    model: str | None
    keys: frozenset[str] | None
    wide: bool
    files: Sequence[str] = ()

    def has(self, key: str) -> bool:
        """Return whether a model is shown."""
        return self.model in (None, key) and (self.keys is None or key in self.keys)

    def of(self, seen: Inventory) -> list[Replica]:
        """Return the replicas to show."""
        return [replica for replica in seen.replicas
                if (self.fleet is None or replica.fleet == self.fleet.name) and self.has(replica.model)]

    def outdated(self, seen: Inventory) -> list[Drift]:
        """Return the live replicas whose spec differs from the file's."""
        models, dead = {model.key: model for model in (self.fleet.models if self.fleet else ())}, dead_node_ids(seen)
        outdated = [replica for replica in self.of(seen) if replica.model in models and replica.replica_id is not None
                 and is_live(replica, dead) and is_outdated(replica, models[replica.model])]
        if not outdated:
            return []
        from fleetctl.planner.drift import spec_drift  # imports the ledger, which is rarely needed here

        return [spec_drift(models[replica.model], replica) for replica in outdated]

    def report(self, seen: Inventory, outdated: Sequence[Drift], *, differences: bool = True) -> Report:
        """Return the report; `differences` = also list what differs in the outdated replicas."""
        models = self.fleet.models if self.fleet else ()
        shown = [model for model in models if self.has(model.key)] if self.fleet else None
        hidden = {model.key for model in models if not self.has(model.key)}
        return status_report(self.of(seen), {node.id: node.name for node in seen.nodes}, dead_node_ids(seen),
                             outdated, shown, observed_at=seen.observed_at, wide=self.wide, differences=differences,
                             files=self.files, on_cards=self._on_cards(seen) if self.wide else None,
                             failed=[failure for failure in failed_lately(seen, self.fleet.name if self.fleet else None)
                                     if self.has(failure.model)] if seen.failures else [],
                             cooling=[(item.name, item.why) for item in what_cools(self.fleet, seen)
                                      if item.node or item.name not in hidden] if self.fleet else (),
                             cold=list(self._cold(self.fleet, seen)) if self.fleet else (), nodes=seen.nodes,
                             starting=self._starting(self.fleet, seen) if self.fleet else {},
                             pauses=[pause for pause in seen.pauses
                                     if (self.fleet is None or pause.fleet == self.fleet.name)
                                     and (pause.model is None or self.has(pause.model))])

    def _on_cards(self, seen: Inventory) -> CardBytes:
        from fleetctl.planner.placement.card_use import CardUse  # for wide tables

        use, models = CardUse(seen), {model.key: model for model in (self.fleet.models if self.fleet else ())}

        def on_cards(replica: Replica, member: ReplicaMember) -> tuple[int | None, int | None]:
            model = models.get(replica.model)
            known = model is not None and model.has_spec(replica.spec_hash)
            return use.estimated(model, member) if model and known else None, use.measured(replica, member)

        return on_cards

    def _starting(self, fleet: ResolvedFleet, seen: Inventory) -> Mapping[str, str]:
        """Return how long a start may take, by model, where weights or earlier starts make it longer."""
        if not seen.starts and not any(model.engine_hash for model in fleet.models):
            return {}
        from fleetctl.planner.weights import startup_notes  # most fleets have no weights

        return startup_notes(fleet, seen)

    def _cold(self, fleet: ResolvedFleet, seen: Inventory) -> Iterator[tuple[str, str, str]]:
        """Yield each shown model with `cold`, the nodes that keep its weights, and the nodes that lack them."""
        kept = [model for model in fleet.models if model.cold is not None and self.has(model.key)]
        if kept:
            from fleetctl.planner.cold import kept_on  # imports prefetches, rarely needed here

            for model in kept:
                there, lacking = kept_on(model, seen)
                yield model.key, ", ".join(there), ", ".join(lacking)


def look(invocation: Invocation, source: InventorySource, chosen: Shown, *, verified: bool) -> tuple[Inventory, Shown]:
    """Read the inventory; return it, and the choice with a model's key in place of its checkpoint.

    `verified` = also what was verified of the weights. Raises FleetctlError for a model that nothing knows.
    """
    seen = read(invocation, source, ages=True)
    if verified and not isinstance(source, Snapshot):
        from fleetctl.inventory.cold import with_verified  # most clusters have no weights to read about

        seen = with_verified(source.client, seen)
    if chosen.model is not None and not chosen.of(seen):
        chosen = _by_checkpoint(invocation, chosen.model, chosen, seen)
    return seen, chosen


def compared(source: InventorySource, chosen: Shown, seen: Inventory) -> list[Drift]:
    """Return the outdated replicas; of a running cluster with the differences from the file."""
    outdated = chosen.outdated(seen)
    if not outdated or chosen.fleet is None or isinstance(source, Snapshot):
        return outdated
    from fleetctl.workflow.spec_changes import add_changes, look_up_changes  # reads the history of applies

    return add_changes(outdated, look_up_changes(source.client, chosen.fleet, outdated))


def _by_checkpoint(invocation: Invocation, model: str, chosen: Shown, seen: Inventory) -> Shown:
    """Return the choice by key, for a model that is named by its checkpoint.

    Reports that no replica of a wanted model runs; raises FleetctlError for an unknown name.
    """
    fleet = chosen.fleet
    wanted = {written.key: written.asked_for for written in fleet.models} if fleet else {}
    model = with_key(model, {replica.model for replica in seen.replicas} | wanted.keys())
    chosen = replace(chosen, model=model)
    if chosen.of(seen):
        return chosen
    if model in wanted:
        invocation.say("note", f"no replica of {model} runs; the fleet file wants {wanted[model]}")
        return chosen
    running = {replica.model for replica in replace(chosen, model=None, keys=None).of(seen)}
    hint = did_you_mean(model, running | wanted.keys()) or "`fleetctl status` lists what runs"
    raise absent(seen, f"there is no replica of {model}{f' in fleet {fleet.name}' if fleet else ''}", hint)
