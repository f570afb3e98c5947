"""What an answer of a cluster may cost: bytes, values and seconds. Nothing that answers is trusted to end by itself."""

from __future__ import annotations

from dataclasses import dataclass

MAX_VALUES = 16_000_000
"""Values in one JSON document: Python keeps up to a hundred bytes for each, whatever it took to write it."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of one request. Bytes are counted as they are unpacked, not as they travel; seconds include every try.

    `stream_*` and `entry_bytes` are for an answer that is read entry by entry. `silent_s` = how long an address that
    has never answered may say nothing; `waiting_s` = after that long, somebody is told what is waited for.
    """

    answer_bytes: int = 256 << 20
    total_s: float = 120.0
    stream_bytes: int = 2 << 30
    stream_s: float = 600.0
    entry_bytes: int = 16 << 20
    silent_s: float = 20.0
    waiting_s: float = 3.0
