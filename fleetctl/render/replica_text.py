"""Replicas, their states and their placements in words: `m/0-2`, `restarting (restart 3 of 5)`, `8 GPUs on node-a`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING

from fleetctl.documents.base import clock_text
from fleetctl.documents.inventory import Replica, is_lost
from fleetctl.documents.quantity import SHARE, amount_of, grouped, plural
from fleetctl.render.visible import visible

if TYPE_CHECKING:
    from fleetctl.documents.answers import NewReplica
    from fleetctl.documents.plan import Action, ActionMember, PlanInventory

STATE_WORDS = {
    "ALIVE": "ready", "PENDING_CREATION": "starting", "DEPENDENCIES_UNREADY": "starting", "RESTARTING": "restarting",
    "DEAD": "dead",
}


def placement_text(members: Sequence[ActionMember]) -> str:
    """Name every node of a replica with the amount claimed there: GPUs, or CPUs if it claims no GPU."""
    by_node = grouped((member.node, member) for member in members)
    by_amount = grouped((amount_text(there), node) for node, there in by_node.items())
    return ", ".join(
        f"{amount} on {nodes[0]}" if len(nodes) == 1 else f"{amount} on each of {', '.join(nodes)}"
        for amount, nodes in by_amount.items())


def amount_text(members: Sequence[ActionMember]) -> str:
    """Return the amount claimed by members on one node: `8 GPUs`, `0.25 GPU`, `3 x 0.25 GPU`, `2 CPUs`."""
    for unit, shares in (("GPU", [m.gpus for m in members]), ("CPU", [m.cpus for m in members])):
        if not any(shares):
            continue
        if len(shares) > 1 and len(set(shares)) == 1 and shares[0] < SHARE:
            return f"{len(shares)} x {amount_of(shares[0], unit)}"
        return amount_of(sum(shares), unit)
    return "a place"


def group_alike(actions: Iterable[Action | NewReplica]) -> list[tuple[str, list[int], str]]:
    """Group replicas of one model with the same variant and place, in order of first appearance.

    Returns the model, the replica ids, and variant and place in words.
    """
    from fleetctl.documents.plan import Action  # slow to import, and other tables need no plan

    groups: dict[tuple[str, str], list[int]] = {}
    for action in actions:
        warm = ", promoted from WARM" if isinstance(action, Action) and action.op == "promote" else ""
        variant = f"{action.variant}, " if action.variant else ""
        place = f"{variant}{placement_text(action.members)}{warm}"
        groups.setdefault((action.model, place), []).append(action.replica_id)
    return [(model, ids, place) for (model, place), ids in groups.items()]


def ids_text(replica_ids: Sequence[int]) -> str:
    """Return replica ids as ranges: `3`, `3-7`, `0-2,5`."""
    runs: list[list[int]] = []
    for number in sorted(replica_ids):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def replica_ranges(names: Iterable[str]) -> list[str]:
    """Merge the replicas of each model: `m/0` and `m/1` become `m/0-1`; foreign names stay as they are."""
    ids: dict[str, list[int]] = {}
    for name in dict.fromkeys(names):
        model, slash, number = name.rpartition("/")
        if slash and number.isdecimal():
            ids.setdefault(model, []).append(int(number))
        else:
            ids[name] = []
    return [f"{model}/{ids_text(numbers)}" if numbers else model for model, numbers in ids.items()]


def scope_text(fleet: str | None, inventory: PlanInventory) -> str:
    """Name the fleet and the inventory of an answer."""
    prefix = f"fleet {fleet}, " if fleet else ""
    return f"{prefix}inventory of {inventory.observed_at} from {inventory.source}"


def replica_name(model: str, replica_id: int | None, foreign_id: str | None = None) -> str:
    """Return `model/id`, or the actor's own name if it does not follow our naming scheme."""
    return visible(f"{model}/{replica_id}" if replica_id is not None else foreign_id or model)


def name_of(replica: Replica) -> str:
    """Return the name of a replica of the inventory."""
    return replica_name(replica.model, replica.replica_id, replica.foreign_id)


def status_word(replica: Replica, dead: Set[str]) -> str:
    """Return the status of a replica in a word or two; `dead` = the ids of dead nodes."""
    if not replica.constructed:
        return "never constructed"
    if is_lost(replica, dead):
        return "lost"
    if replica.level == "WARM" and replica.state == "ALIVE":
        return "warm"
    return "draining" if replica.draining else "not ready" if replica.not_ready_since else STATE_WORDS[replica.state]


def note_text(replica: Replica, observed_at: str | None) -> str:
    """Return why a replica is not ready or why it ended last, if known; `observed_at` None = a time with its date."""
    since = replica.not_ready_since
    if since is None:
        return replica.error or ""
    shown = clock_text(since, observed_at) if observed_at else since
    return f"no longer ready since {shown}: {replica.not_ready_reason}"


def state_text(replica: Replica, dead: Set[str]) -> str:
    """Return the status with its restarts: `ready, 3 of 5 restarts`, `restarting (restart 3 of 5)`.

    `ready, 7 restarts` = it has been ready so long that none of them counts any more.
    """
    word, used = status_word(replica, dead), replica.in_a_row
    limit = f" of {replica.restart_max}" if replica.restart_max is not None else ""
    if word == "restarting":
        return f"{word} (restart {max(1, used)}{limit})"
    if not replica.restarts:
        return word
    if not used:
        return f"{word}, {replica.restarts} {plural(replica.restarts, 'restart')}"
    return f"{word}, {used}{limit} {plural(replica.restart_max or used, 'restart')}"


def node_text(replica: Replica, names: Mapping[str, str]) -> str:
    """Return the names of a replica's nodes, the leader's first; `?` = not placed yet. `names` maps node id to name."""
    nodes = dict.fromkeys(names.get(member.node_id or "", member.node_id or "?") for member in replica.members)
    return visible(", ".join(nodes)) or "-"
