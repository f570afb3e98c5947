"""A replica in words: its name, its state, its nodes. One wording for every table and sentence."""

from __future__ import annotations

from collections.abc import Mapping, Set

from fleetctl.documents.inventory import Replica, is_lost
from fleetctl.documents.quantity import plural
from fleetctl.render.visible import visible

WORDS = {
    "ALIVE": "ready", "PENDING_CREATION": "starting", "DEPENDENCIES_UNREADY": "starting", "RESTARTING": "restarting",
    "DEAD": "dead",
}


def replica_name(model: str, replica_id: int | None, foreign_id: str | None = None) -> str:
    """Return `model/id`, or the actor's own name where it is not in our scheme."""
    return visible(f"{model}/{replica_id}" if replica_id is not None else foreign_id or model)


def status_word(replica: Replica, dead: Set[str]) -> str:
    """Return how a replica is, in a word or two; `dead` = the ids of dead nodes."""
    if not replica.constructed:
        return "never constructed"
    if is_lost(replica, dead):
        return "lost"
    if replica.level == "WARM" and replica.state == "ALIVE":
        return "warm"
    return "draining" if replica.draining else WORDS[replica.state]


def state_text(replica: Replica, dead: Set[str]) -> str:
    """Return the status word with its restarts: `ready, 3 of 5 restarts`, `restarting (restart 3 of 5)`."""
    word, most = status_word(replica, dead), f" of {replica.restart_max}" if replica.restart_max is not None else ""
    if word == "restarting":
        return f"{word} (restart {max(1, replica.restarts)}{most})"
    if not replica.restarts:
        return word
    return f"{word}, {replica.restarts}{most} {plural(replica.restart_max or replica.restarts, 'restart')}"


def node_text(replica: Replica, names: Mapping[str, str]) -> str:
    """Return the names of its nodes, each once, the leader's first; `?` = on no node yet. `names` by node id."""
    nodes = dict.fromkeys(names.get(member.node_id or "", member.node_id or "?") for member in replica.members)
    return visible(", ".join(nodes)) or "-"
