"""Amounts as a person would write them in a fleet file."""

from __future__ import annotations

from fleetctl.documents.quantity import format_bytes


def duration_text(seconds: int) -> str:
    """Return seconds as a duration: whole minutes as minutes."""
    return f"{seconds // 60}m" if seconds and seconds % 60 == 0 else f"{seconds}s"


def bytes_text(count: int) -> str | int:
    """Return bytes as a quantity where that is exact (`16Gi`), otherwise as the number."""
    text = format_bytes(count)
    return text if text[-1:] == "i" and "." not in text else count
