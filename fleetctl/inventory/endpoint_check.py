"""Whether endpoints answer: each is asked once, as its readiness probe would ask it, with a GET or a connection."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from fleetctl.documents.inventory import host_port
from fleetctl.errors import InventoryError
from fleetctl.inventory.ask_all import ask_all
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.fetch import Bounds

ASKED_AT_ONCE = 16
TIMEOUT_S = 5.0
BOUNDS = Bounds(answer_bytes=1 << 20, total_s=TIMEOUT_S, silent_s=TIMEOUT_S)
Asked = tuple[str, int, str | None]
"""Address, port, and the path of a GET; None = only connect."""


def answering(asked: Sequence[Asked]) -> list[bool]:
    """Return for each endpoint whether it answers, in their order."""
    return ask_all(_answers, asked, ASKED_AT_ONCE)


def _answers(asked: Asked) -> bool:
    address, port, path = asked
    try:
        if path is None:
            socket.create_connection((address, port), TIMEOUT_S).close()
            return True
        with DashboardClient(f"http://{host_port(address, port)}", timeout_s=TIMEOUT_S, bounds=BOUNDS) as client:
            return client.get(path).status_code == 200
    except (OSError, InventoryError):
        return False
