"""What surrounds the replicas of a chaos run: cards that can be lost, an origin of weights that drips, clients."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import time
from dataclasses import dataclass, field
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from tests.chaos.fleet import Name, Watched, read_engine
from tests.in_process import run_here
from tests.nvidia_stand_in import Host, Nvidia, build

CARDS, MEBIBYTES = 2, 81_920
DRIP_S, DRIPPED_S = 0.5, 300.0
SKEW_S = 7200
NOTICE_S = 5.0
"""How long after the loss of a card an engine may still be started that was granted it before."""


class Origin(ThreadingHTTPServer):
    """An http origin of weights on a free port. While `drips` is set, the header of an answer comes byte by byte.

    `dripped` = how many answers did. `away` = it closes every connection.
    """

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.drips, self.away = threading.Event(), threading.Event()
        self.dripped = 0
        super().__init__(("127.0.0.1", 0), Dripping)
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def renew(self, name: str) -> dict[str, Any]:
        """Make another model, which no node has, and return its `weights` for the fleet file."""
        header = json.dumps({"w": {"dtype": "U8", "shape": [4096], "data_offsets": [0, 4096]}}).encode()
        self.folder.mkdir(exist_ok=True)
        (self.folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + os.urandom(4096))
        (self.folder / "config.json").write_text(json.dumps({"name": name}))
        indexed = run_here("weights", "index", str(self.folder), env={"PATH": os.environ["PATH"]}).stdout
        weights: dict[str, Any] = yaml.safe_load(indexed)["weights"]
        return {**weights, "from": [{"http": f"http://127.0.0.1:{self.server_address[1]}/"}]}

    def handle_error(self, *_: object) -> None:
        return

    def close(self) -> None:
        self.drips.clear()
        self.shutdown()
        self.server_close()
        self._thread.join()


class Dripping(SimpleHTTPRequestHandler):
    """Serves the origin's folder."""

    server: Origin

    def __init__(self, *connection: Any) -> None:
        super().__init__(*connection, directory=str(connection[-1].folder))

    def do_GET(self) -> None:
        self.close_connection = True
        if self.server.away.is_set():
            return
        if self.server.drips.is_set():
            self.server.dripped += 1
            ends = time.monotonic() + DRIPPED_S
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Padding: ")
            while self.server.drips.is_set() and time.monotonic() < ends:
                self.wfile.write(b"x")
                time.sleep(DRIP_S)
            return
        super().do_GET()

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        return


@dataclass
class Cards:
    """The cards of each node, through a stand-in for NVIDIA's driver; None without a C compiler."""

    folder: Path
    nvidia: Nvidia | None = None
    hosts: dict[str, Host] = field(default_factory=dict)
    lost: dict[str, dict[str, float]] = field(default_factory=dict)
    """When each card was lost, in seconds since the epoch, by node and UUID."""

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        if shutil.which("cc") or shutil.which("gcc"):
            self.nvidia = build(self.folder)

    def env(self, node: str) -> dict[str, str]:
        """Return the environment of a new node with these cards."""
        if self.nvidia is None:
            return {}
        self.hosts[node] = self.nvidia.host(self.folder / f"{node}.cards", *(
            f"card GPU-{node}-{index} {MEBIBYTES} NVIDIA H100 80GB HBM3" for index in range(CARDS)))
        return {**self.hosts[node].env, "REPORTER_UPDATE_INTERVAL_MS": "2000"}

    def lose(self, node: str, index: int) -> str | None:
        """Lose a card of a node for good, as after Xid 79; None if it cannot be lost."""
        uuid = f"GPU-{node}-{index}"
        lost = self.lost.setdefault(node, {})
        if node not in self.hosts or uuid in lost:
            return None
        self.hosts[node].fail(f"lost {uuid}")
        lost[uuid] = time.time()
        return uuid

    def working(self, free: dict[str, float]) -> dict[str, float]:
        """Return Ray's free cards by node without the lost ones, as if none of these were held."""
        return {node: max(0.0, amount - len(self.lost.get(node, {}))) for node, amount in free.items()}

    def wrong(self, watched: Watched) -> list[str]:
        """Return the engines that were started on a lost card, or by number on a node with one."""
        found = []
        for engine in watched.engines():
            lost = self.lost.get(engine.node, {})
            late = {uuid for uuid, at in lost.items() if engine.started > at + NOTICE_S}
            for card in engine.cards if late else ():
                if card in late or card.isdigit():
                    found.append(f"wrong card: {engine.replica} was started on card {card} of {engine.node}, which has "
                                 f"lost {', '.join(sorted(late))}")
        return found


def skewed(folder: Path) -> dict[str, str] | None:
    """Return the environment of a client whose clock runs SKEW_S ahead, without a sign; None without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    library = folder / "skew.so"
    if not library.exists():
        subprocess.run([compiler, "-shared", "-fPIC", str(Path(__file__).with_name("skew.c")), "-o", str(library)],
                       check=True)
    return {"LD_PRELOAD": str(library)}


class Eviction:
    """A running `evict` of one replica. `wrong` = what it said that was not so, once it has ended."""

    def __init__(self, watched: Watched, name: Name) -> None:
        self.name, self.wrong, self.gone_at = name, "", 0.0
        self._engines = [engine for engine in watched.engines() if engine.replica == name]
        key, number = name
        self.process = watched.start("evict", f"{key}/{number}", "--yes", "--lock-timeout", "20s", "--format", "json")
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()

    def _follow(self) -> None:
        out, _ = self.process.communicate()
        try:
            outcomes = json.loads(out)["outcomes"]
        except (ValueError, KeyError):
            return
        if any(row["outcome"] == "gone" for row in outcomes):
            self.gone_at = time.time()
            left = [engine.pid for engine in self._engines if read_engine(engine.pid) == engine]
            self.wrong = f"wrongly told: {self.name} is gone, but its engine runs: {left}" if left else ""

    def end(self) -> None:
        """Return once it has ended."""
        self._thread.join()
