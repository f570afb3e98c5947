"""Canonical JSON and the hashes over it: equal meaning gives equal bytes, whatever the order of keys."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def canonical_json(value: object) -> bytes:
    """Return UTF-8 JSON with sorted keys and no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def sha256_hex(data: bytes) -> str:
    """Return the SHA-256 of `data` as 64 hex digits."""
    return hashlib.sha256(data).hexdigest()


def plan_id(document: dict[str, Any]) -> str:
    """Return the id of a plan document: the hash of everything in it but the id itself."""
    return sha256_hex(canonical_json({key: value for key, value in document.items() if key != "planId"}))
