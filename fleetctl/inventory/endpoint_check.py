"""Checks whether endpoints answer, each once and like its readiness probe: with a GET or a connection."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from fleetctl.documents.inventory import host_port
from fleetctl.errors import InventoryError
from fleetctl.inventory.ask_all import ask_all
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.fetch import Bounds
from fleetctl.inventory.route import Route

AT_A_TIME = 16
TIMEOUT_S = 5.0
BOUNDS = Bounds(answer_bytes=1 << 20, total_s=TIMEOUT_S, silent_s=TIMEOUT_S)
Endpoint = tuple[str, int, str | None]
"""Address, port, and the path of a GET; None = only connect."""


def answering(endpoints: Sequence[Endpoint]) -> list[bool]:
    """Return for each endpoint, in order, whether it answers."""
    return ask_all(_answers, endpoints, AT_A_TIME)


def via_of(endpoint: Endpoint) -> str:
    """Return the mention of the proxy through which an endpoint is asked, if any."""
    address, port, path = endpoint
    return Route(f"http://{host_port(address, port)}").via if path is not None else ""


def _answers(endpoint: Endpoint) -> bool:
    address, port, path = endpoint
    try:
        if path is None:
            socket.create_connection((address, port), TIMEOUT_S).close()
            return True
        with DashboardClient(f"http://{host_port(address, port)}", timeout_s=TIMEOUT_S, bounds=BOUNDS) as client:
            return client.get(path).status_code == 200
    except (OSError, InventoryError):
        return False
