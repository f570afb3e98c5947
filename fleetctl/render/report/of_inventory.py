"""The inventory as a report: every node with its cards and the replicas that hold them, then a row per replica."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from fleetctl.documents.inventory import (
    Amounts,
    Gpu,
    Inventory,
    Node,
    Replica,
    ReplicaMember,
    card_indices,
    dead_node_ids,
    is_live,
    users_text,
)
from fleetctl.documents.quantity import SHARE, amount_of, count_of, format_bytes, grouped
from fleetctl.planner.live import paused_text
from fleetctl.planner.placement.policies import EffectivePolicy
from fleetctl.render.replica_text import ids_text, name_of, note_text, state_text
from fleetctl.render.report.model import REPLICA, Column, Report, Table

UNKNOWN = "unknown"
NODE_ROW = (Column("node", "node", name=True), Column("state", "state"),
            *(Column(key, key, numeric=True) for key in ("gpu", "cpu", "memory")),
            Column("free", "free", numeric=True, terminal="filled"), Column("heldBy", "held by", name=True),
            Column("foreign", "foreign", terminal="filled"), Column("slots", "slots", terminal="filled"),
            Column("cordon", "cordon", terminal="filled"), Column("cards", "cards", terminal="beside"))
REPLICA_ROW = (REPLICA, Column("status", "status"),
               Column("fleet", "fleet", name=True, terminal="beside"), Column("where", "where"),
               Column("note", "note", terminal="beside"))

Row = tuple[str, ...]
Holders = Mapping[tuple[str, int | None], Sequence[str]]
"""The replicas by (node id, card index); index None = on the node, but on no known card."""


def inventory_report(inventory: Inventory, policies: Mapping[str, EffectivePolicy]) -> Report:
    """Return the report of `inventory`; `policies` are the effective policies by node id."""
    version, session = inventory.cluster.ray_version, inventory.cluster.session_id
    cluster = "".join([f", Ray {version}" if version else "", f", {session}" if session else ""])
    heading = [f"Inventory of {inventory.observed_at} from {inventory.source}{cluster}"]
    if not inventory.complete:
        heading.append("Incomplete: no plan can be made from it.")
    heading += [f"{one.model if one.model is not None else 'All models'} of fleet {one.fleet}: "
                f"{paused_text(one, inventory.observed_at)}" for one in inventory.pauses]
    holders = _holders(inventory.replicas, {node.id: node.gpus for node in inventory.nodes})
    largest, in_use = _most_of_a_model(inventory), _in_use(inventory)
    nodes: list[Row] = []
    for node in inventory.nodes:
        cap = policies[node.id].slot_cap  # shown as `2 of 4 (label)`
        slots = f"{_of(str(largest[node.id]), str(cap.limit))} ({cap.source})" if cap else ""
        nodes += _node_rows(node, in_use[node.id], holders, slots, policies[node.id].cordoned_by or "")
    names, dead = {node.id: node.name for node in inventory.nodes}, dead_node_ids(inventory)
    replicas = [(name_of(one), state_text(one, dead), one.fleet or "",
                 tuple(_where(member, names, alone=len(one.members) == 1) for member in one.members),
                 note_text(one, inventory.observed_at))
                for one in inventory.replicas]
    tables = (Table("node", "Nodes", NODE_ROW, tuple(nodes)),
              Table("replica", "Replicas", REPLICA_ROW, tuple(replicas), beside_from=0))
    return Report(kind="answer", title="Inventory", heading=tuple(heading), conclusion=totals_line(inventory),
                  tables=tuple(table for table in tables if table.rows))


def totals_line(inventory: Inventory) -> str:
    """Return the last line: the numbers of nodes, GPUs and replicas."""
    usable = [node for node in inventory.nodes if node.state == "ALIVE"]
    total = sum(node.resources.total.gpu for node in usable)
    in_use = _in_use(inventory)
    used = sum(in_use[node.id].gpu for node in usable)
    hot = [replica for replica in inventory.replicas if replica.level == "HOT"]
    warm = len(inventory.replicas) - len(hot)
    up = sum(replica.state == "ALIVE" and replica.not_ready_since is None for replica in hot)
    others = f" ({len(inventory.nodes) - len(usable)} not)" if len(usable) < len(inventory.nodes) else ""
    return (f"{count_of(len(usable), 'node')} alive{others}, {used:g} of {total:g} GPUs in use, "
            f"{count_of(len(hot), 'replica')} live ({up} up){f', {warm} WARM' if warm else ''}")


def _most_of_a_model(inventory: Inventory) -> Counter[str]:
    """Return by node id the most replicas of any one model, as slots are counted per model."""
    dead = dead_node_ids(inventory)
    counts = Counter((node_id, replica.model, replica.fleet) for replica in inventory.replicas
                     if is_live(replica, dead) for node_id in {member.node_id for member in replica.members})
    largest: Counter[str] = Counter()
    for (node_id, _, _), count in counts.items():
        largest[node_id or ""] = max(largest[node_id or ""], count)
    return largest


def _in_use(inventory: Inventory) -> dict[str, Amounts]:
    """Return the amounts in use by node id: as Ray counts them, else the claims of the listed replicas."""
    members = grouped((member.node_id, member) for replica in inventory.replicas for member in replica.members)
    claimed = {node_id: Amounts.model_construct(  # their sum may be more than a node can have
        gpu=sum(one.gpus for one in there) / SHARE, cpu=sum(one.cpus for one in there) / SHARE,
        memory=sum(one.memory for one in there)) for node_id, there in members.items()}
    return {node.id: node.resources.used or claimed.get(node.id, Amounts()) for node in inventory.nodes}


def _node_rows(node: Node, used: Amounts, holders: Holders, slots: str, cordon: str) -> Iterator[Row]:
    """Yield the row of a node, then indented rows of its cards; cards with equal cells share a row."""
    total = node.resources.total
    models = Counter(card.model for card in node.gpus if card.model)
    yield (node.name, node.state, _of(f"{used.gpu:g}", f"{total.gpu:g}"), _of(f"{used.cpu:g}", f"{total.cpu:g}"),
           _of(format_bytes(int(used.memory)), format_bytes(int(total.memory))),
           "", ", ".join(holders.get((node.id, None), ())), "", slots, cordon,
           ", ".join(f"{count} x {model}" for model, count in models.items()))
    by_cells: dict[Row, list[int]] = {}
    for card in node.gpus:
        model = f": {card.model}" if card.model and len(models) > 1 else ""
        by_cells.setdefault((model, *_card_cells(card, holders.get((node.id, card.index), ()))), []).append(card.index)
    for (model, *cells), indices in by_cells.items():
        label = f"card {indices[0]}" if len(indices) == 1 else f"cards {ids_text(indices)}"
        yield f"  {label}{model}", *cells


def _card_cells(card: Gpu, holders: Sequence[str]) -> Row:
    share = _of(f"{card.share:g}", "1") if card.share is not None else ""
    used = UNKNOWN if card.memory_used is None else format_bytes(card.memory_used)
    memory = UNKNOWN if card.memory_total is None else _of(used, format_bytes(card.memory_total))
    is_known = card.memory_total is not None and card.memory_used is not None
    free = format_bytes(max(0, (card.memory_total or 0) - (card.memory_used or 0))) if is_known else ""
    foreign = f"{format_bytes(card.memory_foreign)}{users_text(card)}" if card.memory_foreign else ""
    return "", share, "", memory, free, ", ".join(holders), foreign, "", "", ""


def _holders(replicas: Sequence[Replica], cards: Mapping[str, Sequence[Gpu]]) -> Holders:
    holders: defaultdict[tuple[str, int | None], dict[str, None]] = defaultdict(dict)
    for replica in replicas:
        for member in replica.members:
            if member.node_id is not None:
                for index in card_indices(member, cards.get(member.node_id, ())) or (None,):
                    holders[member.node_id, index][name_of(replica)] = None
    return {card: list(names) for card, names in holders.items()}


def _where(member: ReplicaMember, names: Mapping[str, str], *, alone: bool) -> str:
    node = names.get(member.node_id, member.node_id) if member.node_id else "no node yet"
    seat = "" if alone else f"{member.group or ''}/{member.copy_index}/{member.rank} "
    cards = f" GPU {','.join(map(str, member.gpu_indices))}" if member.gpu_indices else ""
    amount = f" ({amount_of(member.gpus, 'GPU')})" if member.gpus else ""
    address = f" {member.host_port}" if member.host_port else ""
    return f"{seat}{node}{cards}{amount}{address}"


def _of(used: str, total: str) -> str:
    return f"{used} of {total}"
