"""Small pieces for small models, and the secret of the tests' cluster. Without NumPy: each process of a test has it."""

from __future__ import annotations

from fleetctl.agent.weights import fetch, gather, index, store

SECRET = b"of this cluster"
PIECE = 1 << 16


def small_pieces() -> None:
    """Let a piece have 64 KiB, so that small files have many, and a busy source be asked again soon."""
    for module in (index, gather, store, fetch):
        module.PIECE = PIECE
    store.HEADROOM, fetch.BUSY_S = 0, 0.02
