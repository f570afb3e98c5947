"""Have the agent remove what is ours and dead, and only what is named. Apply never imports this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fleetctl.apply.examine import Asker, reading_answers
from fleetctl.documents.diagnosis import Repaired
from fleetctl.documents.examined_node import LeftLock, OrphanProcess
from fleetctl.inventory.used import PlacementGroup

REPAIR = "repair"


@dataclass(frozen=True, slots=True)
class Dead:
    """What is ours and dead; `orphans` by the id of their node."""

    groups: Sequence[PlacementGroup] = ()
    orphans: Mapping[str, Sequence[OrphanProcess]] = field(default_factory=dict)
    locks: Sequence[LeftLock] = ()

    def __bool__(self) -> bool:
        return bool(self.groups or self.orphans or self.locks)


def repair(asker: Asker, job: str, dead: Dead) -> list[Repaired]:
    """Return what became of each; raises ApplyError and WaitTimeout."""
    events = asker.run(REPAIR, job, {
        "groups": [{"id": group.group_id, "name": group.name} for group in dead.groups],
        "orphans": {node_id: [one.model_dump(by_alias=True) for one in found] for node_id, found in
                    dead.orphans.items()},
        "locks": [one.model_dump(by_alias=True) for one in dead.locks]})
    with reading_answers():
        return [Repaired.model_validate({**(one.model_extra or {}), "message": one.message})
                for one in events if one.type == "repaired"]
