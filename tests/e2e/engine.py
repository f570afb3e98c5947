"""An engine for tests: HTTP with /health and /env, children that try to escape (setsid, double fork), ways to fail."""

from __future__ import annotations

import argparse
import http.server
import json
import os
import subprocess
import threading
import time
from pathlib import Path

CHILD = ["sleep", "100000"]


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        ready = time.monotonic() >= READY_AT and (not options.ready_when or os.access(options.ready_when, os.F_OK))
        if self.path == "/health" and ready and options.exit_after and not LEAVING.is_set():
            LEAVING.set()  # counted from here: however slow its start was, it has been ready
            threading.Timer(options.exit_after, leave).start()
        self.send_response(200 if self.path != "/health" or ready else 503)
        self.end_headers()
        loaded = {"E2E_COMPILED": COMPILED, "E2E_LOADED": LOADED[-1], "E2E_LOADS": str(len(LOADED))}
        self.wfile.write(json.dumps({**os.environ, **loaded, "E2E_PID": str(os.getpid())}).encode())

    def do_POST(self) -> None:
        """Take a moment, like a generation; /reload loads another model unless it is broken."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path != "/reload":
            time.sleep(0.3)
            self.do_GET()
            return
        request = json.loads(body)
        config = json.loads(Path(request["dir"], "config.json").read_text())
        while config.get("waitsFor") and not Path(config["waitsFor"]).exists():
            time.sleep(0.05)
        if config.get("broken"):
            self.send_response(500)
            self.end_headers()
            self.wfile.write(b"cannot load layer 7")
            return
        LOADED.append(config["name"])
        self.send_response(200)
        self.end_headers()

    def do_PUT(self) -> None:
        """Respond after two engines have received such a request at the same time; the path is a folder they share."""
        Path(self.path, str(os.getpid())).touch()
        deadline = time.monotonic() + 30
        while (arrived := len(list(Path(self.path).iterdir()))) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        self.send_response(200 if arrived == 2 else 504)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


def compiled(folder: Path) -> str:
    """Write kernels into a cache, slowly, unless they are there; returns which of the two."""
    if (folder / "sub" / "kernel-3.so").exists():
        return "found"
    (folder / "sub").mkdir(parents=True, exist_ok=True)
    for number in range(4):
        with (folder / "sub" / f"kernel-{number}.so").open("wb") as kernel:
            for _ in range(4):
                kernel.write(os.urandom(1 << 16))
                time.sleep(0.1)
    return "compiled"


def leave() -> None:
    print("engine: cannot find the weights", flush=True)
    os._exit(options.exit_code)


def escape() -> None:
    """Leave one child in a session of its own, and one deliberately orphaned process."""
    subprocess.Popen(CHILD, start_new_session=True)
    if os.fork() == 0:
        subprocess.Popen(CHILD, start_new_session=True)
        os._exit(0)
    os.wait()


parser = argparse.ArgumentParser()
parser.add_argument("port", type=int)
parser.add_argument("--ready-after", type=float, default=0)
parser.add_argument("--ready-when", help="this file exists")
parser.add_argument("--exit-code", type=int)
parser.add_argument("--exit-after", type=float, default=0, help="seconds after it was ready; 0 = at once")
parser.add_argument("--plain", action="store_true", help="no children")
parser.add_argument("--tensor-parallel-size", help="as engines have it; without effect here")
parser.add_argument("--compiles", metavar="VARIABLE", help="it has a cache there")
options = parser.parse_args()

print(f"engine rank {os.environ.get('FLEETCTL_RANK')} says hello", flush=True)
MODEL_DIR = os.environ.get("FLEETCTL_MODEL_DIR")
CONFIG_FILE = Path(MODEL_DIR or "/nowhere", "config.json")
CONFIG = json.loads(CONFIG_FILE.read_text()) if CONFIG_FILE.exists() else {}
LEAVING = threading.Event()
LOADED = [str(CONFIG.get("name", ""))]
COMPILED = compiled(Path(os.environ[options.compiles])) if options.compiles else ""
READY_AT = time.monotonic() + options.ready_after
if not options.plain:
    escape()
if options.exit_code is not None and not options.exit_after:
    threading.Timer(0, leave).start()
http.server.ThreadingHTTPServer(("", options.port), Handler).serve_forever()
