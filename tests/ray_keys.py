"""Ray's key-value table, in memory: the functions that the agent imports from `ray.experimental.internal_kv`."""

from __future__ import annotations

import threading
from types import ModuleType
from typing import Any

import pytest


class Keys:
    """The table. Each call is atomic, as in Ray."""

    def __init__(self) -> None:
        self.table: dict[tuple[bytes | None, bytes], bytes] = {}
        self.pinned: dict[str, int] = {}
        """Packages that Ray is to delete after so many seconds."""
        self._lock = threading.Lock()

    def put(self, key: bytes, value: bytes, overwrite: bool = True, *, namespace: bytes | None = None) -> bool:
        """Write, and return whether the key existed before."""
        with self._lock:
            existed = (namespace, key) in self.table
            if overwrite or not existed:
                self.table[namespace, key] = value
            return existed

    def get(self, key: bytes, *, namespace: bytes | None = None) -> bytes | None:
        with self._lock:
            return self.table.get((namespace, key))

    def delete(self, key: bytes, *, namespace: bytes | None = None) -> int:
        with self._lock:
            return int(self.table.pop((namespace, key), None) is not None)

    def list(self, prefix: bytes, *, namespace: bytes | None = None) -> list[bytes]:
        with self._lock:
            return [key for space, key in self.table if space == namespace and key.startswith(prefix)]

    def pin(self, uri: str, *, expiration_s: int) -> None:
        self.pinned[uri] = expiration_s

    def install(self, monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> Keys:
        """Replace Ray's table with this one in modules of the agent."""
        calls: dict[str, Any] = {"_internal_kv_put": self.put, "_internal_kv_get": self.get,
                                 "_internal_kv_del": self.delete, "_internal_kv_list": self.list,
                                 "_pin_runtime_env_uri": self.pin}
        for module in modules:
            for name, stand_in in calls.items():
                if hasattr(module, name):
                    monkeypatch.setattr(module, name, stand_in)
        return self
