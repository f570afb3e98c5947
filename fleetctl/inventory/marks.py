"""A replica's description of itself: its name, and once it is up its repr, with fleet, spec, members and claims.

The agent, perhaps another version, writes the repr, and Ray passes it on. But any program on the cluster can create an
actor with such a name and repr: all of it is a claim. A part that cannot be read, or is beyond its bounds, is left out
and named; nothing here raises. An address counts only if it is that of the member's node by Ray's own table.

Names follow our schemes, HOT and WARM, or one of NDIF's two schemes, which are in use but never ours.
`ModelActor:<key>:<id>` and `WarmReplica:<key>:<id>` split at the *last* colon, because a key may contain colons.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fleetctl.documents.inventory import MAX_START_S, Level, Replica, ReplicaMember, address_of, is_port
from fleetctl.documents.weights import GotCaches, GotWeights, ServedWeights
from fleetctl.inventory.json_values import moment_of, object_of, parse_text, texts_of, whole_of

MAX_MEMBERS, MAX_ITEMS, MAX_TEXT, MAX_AMOUNT = 1_024, 1_024, 4_096, 1 << 60
MOST_NAMED = 5
"""Findings about one replica that are named; the rest is counted."""
SHOWN = 60
"""Characters of a claim that a message quotes."""
_LABEL = re.compile("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_WORD, _LINE = re.compile("[!-~]{1,128}"), re.compile(r"[^\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,1024}")
_MEMBERS = TypeAdapter(list[ReplicaMember])
_WEIGHTS = TypeAdapter(ServedWeights | None)
_CACHES = TypeAdapter(GotCaches | None)
_PREFIX = "ModelActor:"
_HEX_ID = r"(?:[0-9a-f]{32}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"
_OURS = re.compile(r"(ModelActor|WarmReplica):(.+):(0|[1-9][0-9]{0,17})", re.DOTALL)
_ID_LAST = re.compile(rf"ModelActor:(.+):{_HEX_ID}", re.DOTALL)
_ID_FIRST = re.compile(rf"(?:[0-9a-f]{{5}}|{_HEX_ID}):ModelActor:(.+)", re.DOTALL)


def _matching(pattern: re.Pattern[str], value: object) -> str | None:
    return value if isinstance(value, str) and pattern.fullmatch(value) else None


def variant_name(value: object) -> str | None:
    """Return the name of a variant as somebody claims it; None if it is none."""
    return _matching(_LABEL, value)


def _start_seconds(value: object) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and 0.1 <= value <= MAX_START_S else None  # type: ignore[arg-type,operator]


_PARTS: Mapping[str, Callable[[object], object]] = {
    "fleet": partial(_matching, _LABEL), "namespace": partial(_matching, _LINE), "specHash": partial(_matching, _WORD),
    "variant": variant_name, "engineHash": partial(_matching, _WORD), "readyAt": moment_of, "restartMax": whole_of,
    "restartsUncounted": whole_of, "startedIn": _start_seconds}
"""How each part of a repr is read, except its members."""


@dataclass(frozen=True, slots=True)
class Marks:
    """The content of one repr, or the plan while there is none. `problems` name the parts that could not be read."""

    fleet: str | None = None
    namespace: str | None = None
    spec_hash: str | None = None
    engine_hash: str | None = None
    ready_at: str | None = None
    restart_max: int | None = None
    uncounted: int | None = None
    """How many of Ray's restarts do not count toward `restart_max`; None = all do, or it was never restarted."""
    members: tuple[ReplicaMember, ...] = ()
    earlier_tries: frozenset[str] = frozenset()
    """Ids of earlier actors for this replica, which were given up because others used their cards."""
    failed: Mapping[str, Any] = field(default_factory=dict)
    """Why it ended itself by force; empty if it did not."""
    problems: tuple[str, ...] = ()
    begun: str | None = None
    """When the apply that planned it began; only without a repr."""
    started_in: float | None = None
    """How long its start took, in seconds."""
    variant: str | None = None
    """The name of the variant of its model; None = it was started as a model without variants."""

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
        mark = parse_text(repr_name)
    except ValueError:
        return Marks(problems=("its repr is not complete JSON",))
    problems: list[str] = []
    parts: dict[str, Any] = {}
    for key, read in _PARTS.items():
        value = mark.get(key)
        parts[key] = read(value)
        if parts[key] is None and value not in (None, ""):
            problems.append(f"the {key} in its repr cannot be read: {_quoted(value)}")
    return Marks(parts["fleet"], parts["namespace"], parts["specHash"], parts["engineHash"], parts["readyAt"],
                 parts["restartMax"], parts["restartsUncounted"], _members(mark.get("members"), problems),
                 frozenset(texts_of(mark.get("earlierTries"))), object_of(mark.get("failed")),
                 tuple(_few(list(dict.fromkeys(problems)))), started_in=parts["startedIn"],
                 variant=parts["variant"])


def _few(findings: list[str]) -> list[str]:
    more = len(findings) - MOST_NAMED
    return findings if more <= 0 else [*findings[:MOST_NAMED], f"and {more} more of what it says does not count"]


def _quoted(value: object) -> str:
    if isinstance(value, (dict, list)):  # may be nested too deeply for `repr`
        return "a list" if isinstance(value, list) else "an object"
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _members(value: object, problems: list[str]) -> tuple[ReplicaMember, ...]:
    if value is None:
        return ()
    try:
        plain = [_readable(member, problems) for member in value] if isinstance(value, list) else value
        members = _MEMBERS.validate_python(plain)
        if are_bounded(members):
            return tuple(members)
    except ValidationError:
        pass
    problems.append("the members in its repr cannot be read")
    return ()


def _readable(member: Mapping[str, Any] | object, problems: list[str]) -> object:
    """Return a member with the inventory's field names (the agent writes `ip`).

    An address that is none, a port that is none, and weights that cannot be read are left out.
    """
    if not isinstance(member, dict):
        return member
    fields = {"address": member["ip"], **member} if "ip" in member else dict(member)
    for key, what, is_one in (("address", "the IP address of a machine", address_of), ("port", "a port", is_port)):
        if fields.get(key) is not None and not is_one(fields[key]):
            problems.append(f"the {key} in its repr is not {what}: {_quoted(fields.pop(key))}")
    for key, is_plausible in (("weights", _has_plausible_weights), ("caches", _has_plausible_caches)):
        try:
            readable = is_plausible(fields.get(key))
        except ValidationError:
            readable = False
        if not readable:
            problems.append(f"the {key} in its repr cannot be read")
            del fields[key]
    return fields


def _has_plausible_weights(value: object) -> bool:
    return are_plausible(_WEIGHTS.validate_python(value))


def _has_plausible_caches(value: object) -> bool:
    caches = _CACHES.validate_python(value)
    return caches is None or (
        0 <= caches.bytes <= MAX_AMOUNT and 0 <= caches.seconds <= MAX_AMOUNT
        and max(map(len, (caches.key, caches.source, caches.from_, caches.trouble or ""))) <= MAX_TEXT)


def are_plausible(weights: ServedWeights | None) -> bool:
    """Return whether the amounts and texts in what a member says of its weights are in bounds."""
    if weights is None:
        return True
    got = weights.fetched or GotWeights(source="")
    amounts = (weights.bytes or 0, got.bytes, got.reused, got.seconds)
    texts = (weights.unserved or "", got.source, got.from_, *got.left)
    return (min(amounts) >= 0 and max(amounts) <= MAX_AMOUNT and len(texts) <= MAX_ITEMS
            and max(map(len, texts)) <= MAX_TEXT)


def are_bounded(members: Sequence[ReplicaMember]) -> bool:
    """Return whether the members of one replica are few enough, and their texts in bounds, as their numbers are."""
    return len(members) <= MAX_MEMBERS and all(map(_is_bounded, members))


def _is_bounded(member: ReplicaMember) -> bool:
    words = (member.role, *([] if member.node_id is None else [member.node_id]), *member.gpu_uuids)
    return (max(len(member.gpu_indices), len(member.gpu_uuids)) <= MAX_ITEMS and all(map(_WORD.fullmatch, words))
            and (member.group is None or _LABEL.fullmatch(member.group) is not None))


def without_place(member: ReplicaMember) -> ReplicaMember:
    """Return a member that is not up: without address, cards and files, such as those from before a restart."""
    return member.model_copy(update={"address": None, "port": None, "gpu_indices": [], "gpu_uuids": [],
                                      "weights": None, "caches": None})


def with_true_addresses(
    replica: Replica, addresses: Mapping[str, str | None], hosts: Set[str] | None = None
) -> Replica:
    """Return the replica without addresses that are not its own; `refused` names them.

    A member's address is its own if it is that of its node in `addresses`, which are by node id and in their shortest
    form; None = the node's address is not known. `hosts` = the nodes on which Ray lists actors of the replica; None =
    not known, as in a document.
    """
    if not any(member.address for member in replica.members):
        return replica
    members, refused, seats = list[ReplicaMember](), list[str](), set[tuple[str | None, int, int]]()
    for member in replica.members:
        seat, address = (member.group, member.copy_index, member.rank), address_of(member.address)
        why = "another member has the same rank" if seat in seats else _untrue(member, address, addresses, hosts)
        seats.add(seat)
        if member.address is not None and why:
            subject = "it" if len(replica.members) == 1 else f"rank {member.rank} of group {member.group}"
            refused.append(f"{subject} says that it serves at {_quoted(member.address)}, but {why}")
            members.append(member.model_copy(update={"address": None, "port": None}))
        else:
            members.append(member if address == member.address else member.model_copy(update={"address": address}))
    return replica if members == replica.members else replica.model_copy(
        update={"members": members, "refused": [*replica.refused, *_few(refused)]})


def _untrue(
    member: ReplicaMember, address: str | None, addresses: Mapping[str, str | None], hosts: Set[str] | None
) -> str | None:
    """Return why the address of a member is not that of its node; None if it is."""
    node_id = member.node_id or ""
    if address is None:
        return "that is not the IP address of a machine"
    if member.port is not None and not is_port(member.port):
        return f"{member.port} is not a port"
    if node_id not in addresses:
        return "the address of its node is not known"
    if hosts is not None and node_id not in hosts:
        return f"Ray lists no actor of it on node {node_id}"
    own = addresses[node_id]
    return None if own in (None, address) else f"the address of its node is {own}"


def refused_claims(replicas: Iterable[Replica]) -> list[str]:
    """Return the warnings about what replicas say of themselves and does not count."""
    return [f"replica {replica.actor_name}: {why}" for replica in replicas for why in replica.refused]


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
