"""Nodes with caches, without Ray: members of one fleet, whose engines compile by writing files slowly."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from fleetctl.agent.caches import door, folder
from fleetctl.agent.caches.offers import Offer, read_offers, told
from fleetctl.agent.cards import CardCheck
from fleetctl.agent.messages import Engine, Member

SECRET = b"secret"
NAMES = ("VLLM_CACHE_ROOT", "TRITON_CACHE_DIR")
ENGINE = Engine((sys.executable, "serve.py"), ("--port", "$(FLEETCTL_PORT)"), caches=NAMES,
                version=("sh", "-c", "echo 1.0"))


class Fleet:
    """The nodes of a test and what their actors say through Ray."""

    def __init__(self, tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
        self.tmp_path, self._patch = tmp_path, patch
        self.running: list[Running] = []
        self.asked = 0
        patch.setattr(door, "session_secret", lambda: SECRET)
        patch.setattr(door, "offers_for", self._offers)
        patch.setattr(folder.OwnFolder, "in_key", property(self._in_key))
        patch.setattr(door, "QUIET_S", 0.3)
        patch.setattr(door, "POLL_S", 0.05)
        patch.setattr(door, "IDLE_POLL_S", 0.05)

    def _in_key(self, own: folder.OwnFolder) -> str:
        """Return the path as if each node had its disk at the same place."""
        return own.files.replace(str(self.tmp_path), "").split("/", 2)[2]

    def _offers(self, key: Any, but: str) -> list[tuple[str, Offer]]:
        self.asked += 1
        return [(other.replica, offer) for other in self.running if other.replica != but
                for offer in read_offers(told(other.caches.offers())) if offer.key == key.digest]

    def start(self, number: int, node: str, engine: Engine = ENGINE, fleet: str = "lab", time_s: float = 180.0,
              namespace: str = "fleet", **more: Any) -> Running:
        """Take a seat on a node: the caches of its engine are there, as far as there are any."""
        root = self.tmp_path / node
        root.mkdir(exist_ok=True)
        self._patch.setenv("FLEETCTL_CACHE_DIR", str(root))
        self._patch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(
            namespace=namespace, get_node_id=lambda: node))
        running = Running(number, root, Member("main", 0, "Standalone", 0, node, node, engine=engine, **more), fleet,
                          time_s)
        self.running.append(running)
        return running

    def end(self) -> None:
        """End all members."""
        for one in self.running:
            one.end()


class Running:
    """A member that has its caches, and its engine."""

    def __init__(self, number: int, root: Path, member: Member, fleet: str, time_s: float) -> None:
        self.replica, self.root = f"m/{number}", root
        self.log: list[str] = []
        injected = {"FLEETCTL_MODEL": "m", "FLEETCTL_REPLICA_ID": str(number), "FLEETCTL_PORT": str(8000 + number),
                    "FLEETCTL_GROUP_SIZE": "1"}
        self.caches = door.MemberCaches(member, injected, fleet, CardCheck(), time.monotonic() + time_s,
                                        self.log.append)
        self.caches.serve("127.0.0.1")

    @property
    def folders(self) -> list[Path]:
        """The folder of each variable."""
        return [Path(self.caches.variables[name]) for name in NAMES]

    def files(self) -> dict[str, bytes]:
        """All files that its engine finds."""
        return {str(path.relative_to(one.parent)): path.read_bytes() for one in self.folders
                for path in sorted(one.rglob("*")) if path.is_file()}

    def compile(self, text: str = "code", files: int = 3, after_each: Callable[[], object] = lambda: None,
                ) -> dict[str, bytes]:
        """Write as an engine that compiles does; returns what it finds then."""
        for number in range(files):
            path = self.folders[number % 2] / f"{number % 3}" / f"kernel-{number}.so"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(f"{text} {number} ".encode() * 1000)
            after_each()
        return self.files()

    def watch(self, processes: Callable[[], list[int]] = list) -> Running:
        """The engine is ready."""
        self.caches.watch(processes)
        return self

    def offered(self) -> Offer:
        """Return what it offers, once it does."""
        return eventually(lambda: self.caches.offers() and self.caches.offers()[0])

    def end(self) -> None:
        """End the member."""
        self.caches.close()
        if self.caches._served:
            self.caches._served[1].close()
            self.caches._served[0].release()
        if self.caches._entry:
            self.caches._entry.release()
        if self.caches._folder:
            self.caches._folder.release()


def eventually(check: Callable[[], Any], within_s: float = 60.0) -> Any:
    """Return the first true result."""
    deadline = time.monotonic() + within_s
    while not (found := check()):
        assert time.monotonic() < deadline, [thread.name for thread in threading.enumerate()]
        time.sleep(0.02)
    return found
