"""Small pieces for small models, and the secret of the test cluster. Without NumPy: every test process imports this."""

from __future__ import annotations

from fleetctl.agent.weights import check, fetch, gather, index, store

SECRET = b"of this cluster"
PIECE = 1 << 16


def use_small_pieces() -> None:
    """Make pieces 64 KiB, so that small files have several, and shorten the wait for a busy source."""
    for module in (index, gather, store, fetch, check):
        module.PIECE = PIECE
    store.HEADROOM, fetch.BUSY_S = 0, 0.02
