"""An inventory document on disk as the source of an inventory; imports no HTTP client."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from fleetctl.documents.inventory import Inventory, address_of
from fleetctl.documents.loading import load_document, unknown_keys
from fleetctl.documents.quantity import SHARE, count_of
from fleetctl.errors import DocumentError
from fleetctl.fleetfile.file_tree import DISK, read_whole
from fleetctl.fleetfile.sources import nearest_file
from fleetctl.inventory.cards import card_warnings

_SHAPE = re.compile(r"[0-9]+x[A-Za-z][\w-]*")
"""Nodes in the syntax of `--add-node`, such as 8xH100, and hardly the name of a file."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An inventory document on disk, JSON or YAML; `-` is standard input, read by `stdin`."""

    path: str
    stdin: Callable[[], bytes] | None = None

    def read(self, *, ages: bool = False) -> Inventory:  # noqa: ARG002  the signature of `Live.read`
        """Return the inventory; addresses that are not those of their nodes in it are left out.

        Raises DocumentError when it cannot be read or is not an inventory, and when two nodes share an id or a name.
        """
        if self.path == "-" and self.stdin is not None:
            where, data = "standard input", self.stdin()
        else:
            where = self.path
            try:
                data = read_whole(where)
            except OSError as error:
                near = nearest_file(where, DISK) if isinstance(error, FileNotFoundError) else None
                hint = f"did you mean {near}?" if near else None
                if _SHAPE.fullmatch(where):
                    command = f"fleetctl inventory --add-node {where} --format json > FILE"
                    hint = f"`{command}` writes an inventory of such nodes"
                raise DocumentError(f"{where} cannot be read: {error.strerror}", hint=hint) from None
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DocumentError(f"{where} is not UTF-8 text (byte {error.start})") from None
        inventory = load_document(text, Inventory, where=where)
        for what in ("id", "name"):
            counts = Counter(getattr(node, what) for node in inventory.nodes)
            if twice := next((value for value, count in counts.items() if count > 1), None):
                raise DocumentError(f"{where} lists two nodes with the {what} {twice!r}",
                                    hint=f"each node needs its own {what}")
        inventory = _with_node_ids(inventory)
        if any(member.address for replica in inventory.replicas for member in replica.members):
            inventory = _with_true_addresses(inventory)
        if inventory.source.startswith(("http://", "https://")):  # read from a cluster and saved
            return inventory
        warnings = [*unknown_keys(text, Inventory, where=where),
                    *card_warnings(node for node in inventory.nodes if node.gpus and node.state != "DEAD"),
                    *(f"a member of {replica.model} has gpus: {member.gpus}, which is {member.gpus}/{SHARE} of a card; "
                      f"did you mean {member.gpus * SHARE}, {count_of(member.gpus, 'whole card')}?"
                      for replica in inventory.replicas for member in replica.members if 0 < member.gpus < SHARE / 100)]
        warnings = [warning for warning in dict.fromkeys(warnings) if warning not in inventory.warnings]
        return inventory.model_copy(update={"warnings": [*inventory.warnings, *warnings]}) if warnings else inventory


def _with_node_ids(inventory: Inventory) -> Inventory:
    """Return the inventory with node names replaced by node ids in members; people write names by hand."""
    ids, names = {node.id for node in inventory.nodes}, {node.name: node.id for node in inventory.nodes}
    if not any(member.node_id in names for replica in inventory.replicas for member in replica.members
               if member.node_id not in ids):
        return inventory
    return inventory.model_copy(update={"replicas": [
        replica.model_copy(update={"members": [
            member if member.node_id in ids else
            member.model_copy(update={"node_id": names.get(member.node_id or "", member.node_id)})
            for member in replica.members]}) for replica in inventory.replicas]})


def _with_true_addresses(inventory: Inventory) -> Inventory:
    """Return the inventory without addresses that are not those of their nodes in it, and with a warning for each."""
    from fleetctl.inventory.marks import refused_claims, with_true_addresses

    addresses = {node.id: address_of(node.ip) for node in inventory.nodes}
    replicas = [with_true_addresses(replica, addresses) for replica in inventory.replicas]
    new = [warning for warning in refused_claims(replicas) if warning not in inventory.warnings]
    return inventory.model_copy(update={"replicas": replicas, "warnings": [*inventory.warnings, *new]})
