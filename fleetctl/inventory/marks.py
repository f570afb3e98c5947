"""A replica's description of itself: its name, and once it is up its repr, with fleet, spec, members and claims.

The agent, perhaps another version, writes the repr, and Ray passes it on. A part that cannot be read is left out and
named; nothing here raises.

Names follow our schemes, HOT and WARM, or one of NDIF's two schemes, which are in use but never ours.
`ModelActor:<key>:<id>` and `WarmReplica:<key>:<id>` split at the *last* colon, because a key may contain colons.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fleetctl.documents.inventory import Level, ReplicaMember
from fleetctl.documents.served_weights import ServedWeights
from fleetctl.inventory.json_values import moment_of, object_of, text_of, texts_of

_MEMBERS = TypeAdapter(list[ReplicaMember])
_WEIGHTS = TypeAdapter(ServedWeights | None)
_PREFIX = "ModelActor:"
_HEX_ID = r"(?:[0-9a-f]{32}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"
_OURS = re.compile(r"(ModelActor|WarmReplica):(.+):(0|[1-9][0-9]{0,17})", re.DOTALL)
_ID_LAST = re.compile(rf"ModelActor:(.+):{_HEX_ID}", re.DOTALL)
_ID_FIRST = re.compile(rf"(?:[0-9a-f]{{5}}|{_HEX_ID}):ModelActor:(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Marks:
    """The content of one repr, or the plan while there is none. `problems` name the parts that could not be read."""

    fleet: str | None = None
    namespace: str | None = None
    spec_hash: str | None = None
    engine_hash: str | None = None
    ready_at: str | None = None
    restart_max: int | None = None
    members: tuple[ReplicaMember, ...] = ()
    earlier_tries: frozenset[str] = frozenset()
    """Ids of earlier actors for this replica, which were given up because others used their cards."""
    failed: Mapping[str, Any] = field(default_factory=dict)
    """Why it ended itself by force; empty if it did not."""
    problems: tuple[str, ...] = ()
    begun: str | None = None
    """When the apply that planned it began; only without a repr."""

    @property
    def node_ids(self) -> list[str]:
        """The nodes of its members, each once."""
        return list(dict.fromkeys(member.node_id for member in self.members if member.node_id))

    @property
    def gpu_uuids(self) -> list[str]:
        """The cards of its members."""
        return [uuid for member in self.members for uuid in member.gpu_uuids]


def read_marks(repr_name: str) -> Marks:
    """Parse a repr; a repr in another format belongs to a foreign actor and is not a problem."""
    if not repr_name.startswith("{"):
        return Marks()
    try:
        mark = json.loads(repr_name)
    except (ValueError, RecursionError):
        return Marks(problems=("its repr is not complete JSON",))
    if not isinstance(mark, dict):
        return Marks()
    problems: list[str] = []
    members, most = _members(mark.get("members"), problems), mark.get("restartMax")
    fleet, namespace, spec_hash, engine_hash = (
        text_of(mark.get(key)) for key in ("fleet", "namespace", "specHash", "engineHash"))
    return Marks(fleet, namespace, spec_hash, engine_hash, moment_of(mark.get("readyAt")),
                 most if isinstance(most, int) else None, members, frozenset(texts_of(mark.get("earlierTries"))),
                 object_of(mark.get("failed")), tuple(problems))


def _members(value: object, problems: list[str]) -> tuple[ReplicaMember, ...]:
    if value is None:
        return ()
    try:
        plain = [_readable(member, problems) for member in value] if isinstance(value, list) else value
        return tuple(_MEMBERS.validate_python(plain))
    except ValidationError:
        problems.append("the members in its repr cannot be read")
        return ()


def _readable(member: Mapping[str, Any] | object, problems: list[str]) -> object:
    """Return a member with the inventory's field names (the agent writes `ip`), without weights that cannot be read."""
    if not isinstance(member, dict):
        return member
    found = {"address": member["ip"], **member} if "ip" in member else dict(member)
    try:
        _WEIGHTS.validate_python(found.get("weights"))
    except ValidationError:
        problems.append("the weights in its repr cannot be read")
        del found["weights"]
    return found


@dataclass(frozen=True, slots=True)
class ReplicaName:
    """A model key and, for our scheme, the replica's number."""

    model: str
    replica_id: int | None
    level: Level = "HOT"


def parse_actor_name(name: str) -> ReplicaName | None:
    """Parse an actor's name; None if it is not the name of a replica in any known scheme."""
    if match := _OURS.fullmatch(name):
        return ReplicaName(match[2], int(match[3]), "HOT" if match[1] == "ModelActor" else "WARM")
    if match := _ID_LAST.fullmatch(name) or _ID_FIRST.fullmatch(name):
        return ReplicaName(match[1], None)
    if name.startswith(_PREFIX) and len(name) > len(_PREFIX):
        return ReplicaName(name.removeprefix(_PREFIX), None)
    return None
