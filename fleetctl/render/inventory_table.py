"""The inventory at a glance: every node with its cards and who holds them, then a row per replica.

Everything that came from the cluster is shown as plain text, never as markup or terminal commands.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from fleetctl.documents.inventory import Gpu, Inventory, Node, Replica, ReplicaMember, card_indices, dead_node_ids
from fleetctl.documents.quantity import amount_of, count_of, format_bytes
from fleetctl.render.replica_text import STYLES, replica_name, standing_text, status_word
from fleetctl.render.trim import print_trimmed
from fleetctl.render.visible import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

NODE_STYLES = {"ALIVE": "", "DRAINING": "yellow", "DEAD": "red"}
UNKNOWN = "?"

Holders = Mapping[tuple[str, int | None], Sequence[str]]
"""Who holds what: (node id, card index) -> replicas; index None = somewhere on the node."""


def render_inventory_table(inventory: Inventory, console: Console) -> None:
    """Print nodes, cards and replicas for a person."""
    from rich.text import Text

    print_trimmed(Text(_header(inventory)), console)
    if not inventory.complete:
        print_trimmed(Text("Not complete: nothing is planned on this.", "bold red"), console)
    if inventory.nodes:
        console.print()
        print_trimmed(_node_table(inventory), console)
    if inventory.replicas:
        console.print()
        print_trimmed(_replica_table(inventory), console)
    console.print()
    print_trimmed(Text(totals_line(inventory), "bold"), console)


def _header(inventory: Inventory) -> str:
    version, session = inventory.cluster.ray_version, inventory.cluster.session_id
    about = "".join([f", Ray {visible(version)}" if version else "", f", {visible(session)}" if session else ""])
    return f"Inventory of {visible(inventory.observed_at)} from {visible(inventory.source)}{about}"


def totals_line(inventory: Inventory) -> str:
    """Return the last line: how many nodes, GPUs and replicas there are."""
    usable = [node for node in inventory.nodes if node.state == "ALIVE"]
    total = sum(node.resources.total.gpu for node in usable)
    used = sum(node.resources.used.gpu if node.resources.used else 0 for node in usable)
    up = sum(replica.state == "ALIVE" for replica in inventory.replicas)
    others = f" ({len(inventory.nodes) - len(usable)} not)" if len(usable) < len(inventory.nodes) else ""
    return (f"{count_of(len(usable), 'node')} alive{others}, {used:g} of {total:g} GPUs in use, "
            f"{count_of(len(inventory.replicas), 'replica')} live ({up} up)")


def _node_table(inventory: Inventory) -> Table:
    from rich.text import Text

    table = _table("NODE", "STATE", "GPU", "CPU", "MEMORY", "HELD BY", numeric={"GPU", "CPU", "MEMORY"})
    holders = _holders(inventory.replicas, {node.id: node.gpus for node in inventory.nodes})
    for node in inventory.nodes:
        known = node.resources.used is not None
        used, total = node.resources.used, node.resources.total
        table.add_row(
            Text(visible(node.name), "bold"), Text(node.state, NODE_STYLES[node.state]),
            _of(f"{used.gpu:g}" if used else UNKNOWN, f"{total.gpu:g}"),
            _of(f"{used.cpu:g}" if used else UNKNOWN, f"{total.cpu:g}"),
            _of(format_bytes(int(used.memory)) if known and used else UNKNOWN, format_bytes(int(total.memory))),
            Text(", ".join(holders.get((node.id, None), ()))),
        )
        for card, count in _folded(node, holders):
            share = _of(f"{card.share:g}", "1") if card.share is not None and count == 1 else ""
            table.add_row(Text(_card_label(card, count), "dim"), "", share, "", _card_memory(card),
                          Text(", ".join(holders.get((node.id, card.index), ()))))
    return table


def _replica_table(inventory: Inventory) -> Table:
    from rich.text import Text

    names = {node.id: node.name for node in inventory.nodes}
    notes = any(replica.error for replica in inventory.replicas)
    table = _table("REPLICA", "STATUS", "FLEET", "WHERE", *(["NOTE"] if notes else []))
    dead = dead_node_ids(inventory)
    for replica in inventory.replicas:
        word = status_word(replica, dead)
        where = "\n".join(_where(member, names, alone=len(replica.members) == 1) for member in replica.members)
        table.add_row(
            Text(_name(replica), "bold"), Text(standing_text(replica, dead), STYLES[word]),
            Text(visible(replica.fleet or "-")), Text(where),
            *([Text(visible(replica.error or ""), "dim")] if notes else []),
        )
    return table


def _name(replica: Replica) -> str:
    return replica_name(replica.model, replica.replica_id, replica.foreign_id)


def _table(*heads: str, numeric: frozenset[str] | set[str] = frozenset()) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for head in heads:
        table.add_column(head, justify="right" if head in numeric else "left", no_wrap=head in numeric, overflow="fold")
    return table


def _holders(replicas: Sequence[Replica], cards: Mapping[str, Sequence[Gpu]]) -> Holders:
    holders: defaultdict[tuple[str, int | None], list[str]] = defaultdict(list)
    for replica in replicas:
        for member in replica.members:
            if member.node_id is None:
                continue
            for index in (*card_indices(member, cards.get(member.node_id, ())),) or (None,):
                label = _name(replica)
                if label not in holders[member.node_id, index]:
                    holders[member.node_id, index].append(label)
    return holders


def _folded(node: Node, holders: Holders) -> Iterator[tuple[Gpu, int]]:
    """Yield the node's cards; those nothing is known of, but that they are there, together as one with their count."""
    blank = [card for card in node.gpus if not (card.model or card.memory_total or card.share)
             and not holders.get((node.id, card.index))]
    if blank:
        yield blank[0], len(blank)
    yield from ((card, 1) for card in node.gpus if card not in blank)


def _card_label(card: Gpu, count: int) -> str:
    if count > 1:
        return f"  {count} cards"
    return f"  card {card.index}" + (f": {visible(card.model)}" if card.model else "")


def _card_memory(card: Gpu) -> str:
    if card.memory_total is None:
        return UNKNOWN
    return _of(UNKNOWN if card.memory_used is None else format_bytes(card.memory_used), format_bytes(card.memory_total))


def _where(member: ReplicaMember, names: Mapping[str, str], *, alone: bool) -> str:
    """Say where one member is: its place in a gang, node, cards or share, and address."""
    node = visible(names.get(member.node_id, member.node_id)) if member.node_id else "no node yet"
    place = "" if alone else f"{visible(member.group or '')}/{member.copy_index}/{member.rank} "
    cards = f" GPU {','.join(map(str, member.gpu_indices))}" if member.gpu_indices else ""
    amount = f" ({amount_of(member.gpus, 'GPU')})" if member.gpus else ""
    address = f" {visible(member.address)}:{member.port}" if member.address and member.port else ""
    return f"{place}{node}{cards}{amount}{address}"


def _of(used: str, total: str) -> str:
    return f"{used} of {total}"
