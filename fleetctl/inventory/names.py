"""Read replica names: ours, HOT and WARM, and the two schemes of NDIF, which are in use but never ours.

`ModelActor:<key>:<id>` and `WarmReplica:<key>:<id>` split at the *last* colon, because a key may hold colons itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fleetctl.documents.inventory import Level

_PREFIX = "ModelActor:"
_HEX_ID = r"(?:[0-9a-f]{32}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"
_OURS = re.compile(r"(ModelActor|WarmReplica):(.+):(0|[1-9][0-9]{0,17})", re.DOTALL)
_ID_LAST = re.compile(rf"ModelActor:(.+):{_HEX_ID}", re.DOTALL)
_ID_FIRST = re.compile(rf"(?:[0-9a-f]{{5}}|{_HEX_ID}):ModelActor:(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ReplicaName:
    """A model key and, for our scheme, the replica's number."""

    model: str
    replica_id: int | None
    level: Level = "HOT"


def parse_actor_name(name: str) -> ReplicaName | None:
    """Return what an actor's name says, or None when it is not the name of a replica of any known scheme."""
    if match := _OURS.fullmatch(name):
        return ReplicaName(match[2], int(match[3]), "HOT" if match[1] == "ModelActor" else "WARM")
    if match := _ID_LAST.fullmatch(name) or _ID_FIRST.fullmatch(name):
        return ReplicaName(match[1], None)
    if name.startswith(_PREFIX) and len(name) > len(_PREFIX):
        return ReplicaName(name.removeprefix(_PREFIX), None)
    return None
