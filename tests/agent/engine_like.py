"""A small server that behaves like a real engine. Only the standard library: run it as `python -I -S engine_like.py`.

    engine_like.py --port N [--host H] [--workers 1] [--loading SECONDS] [--segment BYTES] [--untracked]
                   [--like vllm|sglang|llama.cpp|tgi|none] [--fail CAUSE] [--code 1]

Processes: the front serves HTTP, its workers (forks, in sessions of their own) do the work, and Python's resource
tracker removes the shared memory once all of them have closed its pipe. It ignores SIGTERM, as in vLLM.

Start: a progress bar with carriage returns and colors, `--loading` seconds long; `--fail CAUSE` makes a worker fail
there as vLLM's do: the cause is in the worker's traceback, the front's traceback follows and says that the cause is
above, then come the other processes' warnings, and the front exits with `--code`.

SIGTERM to the front: no new requests (503), running ones end, then the workers, then exit code 0. A second SIGTERM or a
SIGINT: exit at once, code 1. SIGTERM to a worker: it ends at once, and running requests get 500 `worker is gone`. A
worker that is killed ends the front with exit code 0, as vLLM's headless ranks do. Each signal is a line of the log:
`front: signal 15 number 1, 2 requests running`, `worker: signal 15`.

GET  /health        200, or what was asked for
GET  /metrics       requests running and waiting, under the names of `--like`
GET  /state         {"pid", "workers": [pids], "segment": the name in /dev/shm, "running", "signals", "nice", "env"}
GET  /work?for=S    a request that takes S seconds, or without `for` until all are to be done
POST /be?health=503 answer /health with this status from now on; `slow` = 200 after 12 seconds
POST /be?waiting=2  report this many waiting requests
POST /be?done=1     end the requests that run, with 200
POST /be?exit=0     exit with this code at once, without ending the workers
POST /be?kill=worker  kill the first worker
"""

from __future__ import annotations

import argparse
import http.server
import json
import os
import signal
import socket
import sys
import threading
import time
from multiprocessing import resource_tracker, shared_memory
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

METRICS = {
    "vllm": ("vllm:num_requests_running", "vllm:num_requests_waiting", '{engine="0",model_name="tiny"}'),
    "sglang": ("sglang:num_running_reqs", "sglang:num_queue_reqs", '{model_name="tiny",tp_rank="0"}'),
    "llama.cpp": ("llamacpp:requests_processing", "llamacpp:requests_deferred", ""),
    "tgi": ("tgi_batch_current_size", "tgi_queue_size", ""),
}
BAR = "\r\x1b[32mLoading safetensors checkpoint shards:\x1b[0m {0:3d}% Completed | {1}/4 [00:00<00:00, 9.91it/s]"
TRACEBACK = """\
(EngineCore pid={pid}) ERROR EngineCore failed to start.
(EngineCore pid={pid}) Traceback (most recent call last):
(EngineCore pid={pid})   File "core.py", line 842, in run_engine_core
(EngineCore pid={pid})     raise e
(EngineCore pid={pid}) {cause}
"""
FRONTS = """\
Traceback (most recent call last):
  File "server.py", line 21, in <module>
    asyncio.run(main())
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
/usr/lib/python3.12/multiprocessing/resource_tracker.py:254: UserWarning: resource_tracker: There appear to be 1 \
leaked shared_memory objects to clean up at shutdown
  warnings.warn('resource_tracker: There appear to be %d '
"""


def say(text: str, end: str = "\n") -> None:
    os.write(1, (text + end).encode())  # one write: lines of several processes do not mix


class Front:
    """The state of the front; `running` = requests being answered."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.health, self.waiting, self.running, self.signals = "200", 0, 0, 0
        self.draining, self.done = threading.Event(), threading.Event()
        self.segment = self.segment_of(options) if options.segment else None
        self.workers = [self.fork_worker() for _ in range(options.workers)]

    @staticmethod
    def segment_of(options: argparse.Namespace) -> shared_memory.SharedMemory:
        segment = shared_memory.SharedMemory(create=True, size=options.segment)
        if options.untracked:
            resource_tracker.unregister(segment._name, "shared_memory")  # type: ignore[attr-defined]
        return segment

    def fork_worker(self) -> int:
        pid = os.fork()
        if pid:
            return pid
        os.setsid()

        def end(number: int, _: object) -> None:
            say(f"worker: signal {number}")
            os._exit(0)

        signal.signal(signal.SIGTERM, end)
        parent = os.getppid()
        if self.options.fail:
            say(TRACEBACK.format(pid=os.getpid(), cause=self.options.fail), "")
            os._exit(1)
        while os.getppid() == parent:
            time.sleep(0.05)
        os._exit(1)

    def load(self) -> None:
        for part in range(5):
            say(BAR.format(part * 25, part), "")
            time.sleep(self.options.loading / 5)
        say("")
        if self.options.fail:
            for pid in self.workers:
                os.waitpid(pid, 0)
            say(FRONTS.format("{}"), "")
            os._exit(self.options.code)

    def worker_is_gone(self) -> bool:
        return any(not Path(f"/proc/{pid}/exe").exists() for pid in self.workers)  # a zombie has no exe

    def work(self, seconds: float) -> tuple[int, str]:
        if self.draining.is_set():
            return 503, "draining"
        self.running += 1
        try:
            until = time.monotonic() + seconds
            while time.monotonic() < until and not self.done.is_set():
                time.sleep(0.01)
                if self.worker_is_gone():
                    return 500, "worker is gone"
        finally:
            self.running -= 1
        return 200, "done"

    def answer(self, method: str, path: str, query: dict[str, str]) -> tuple[int, str]:
        if path == "/health":
            time.sleep(12 if self.health == "slow" else 0)
            return (200 if self.health == "slow" else int(self.health)), "health"
        if path == "/metrics" and self.options.like in METRICS:
            running, waiting, labels = METRICS[self.options.like]
            return 200, (f"# TYPE {running} gauge\n{running}{labels} {self.running:.1f}\n"
                         f"# TYPE {waiting} gauge\n{waiting}{labels} {self.waiting:.1f}\n")
        if path == "/state":
            return 200, json.dumps({
                "pid": os.getpid(), "workers": self.workers, "segment": self.segment and self.segment.name,
                "running": self.running, "signals": self.signals, "nice": os.nice(0), "env": dict(os.environ)})
        if path == "/work":
            return self.work(float(query.get("for", "inf")))
        if method == "POST" and path == "/be":
            self.health = query.get("health", self.health)
            self.waiting = int(query.get("waiting", self.waiting))
            if "exit" in query:
                say(f"front: exiting with {query['exit']}")
                os._exit(int(query["exit"]))
            if "done" in query:
                self.done.set()
            if "kill" in query:
                os.kill(self.workers[0], signal.SIGKILL)
            return 200, "so be it"
        return 404, "not found"

    def on_signal(self, number: int, _: object) -> None:
        self.signals += 1
        say(f"front: signal {number} number {self.signals}, {self.running} requests running")
        if self.signals > 1 or number == signal.SIGINT:
            os._exit(1)
        self.draining.set()

    def until_the_end(self) -> None:
        """Return once requests have drained, or a worker has died."""
        while not (self.draining.is_set() and not self.running):
            self.draining.wait(0.05)
            if self.worker_is_gone():
                say("(EngineCore) ERROR worker proc died unexpectedly, shutting down executor.")
                break
            if self.draining.is_set():
                time.sleep(0.02)
        for pid in self.workers:
            try:
                os.kill(pid, signal.SIGTERM)
                os.waitpid(pid, 0)
            except OSError:
                continue
        if self.segment:
            self.segment.close()
            if not self.options.untracked:
                self.segment.unlink()
        say("front: shut down")
        os._exit(0)


class Handler(http.server.BaseHTTPRequestHandler):
    """Hands requests to the front, which is set on the class."""

    front: Front

    def respond(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, text = self.front.answer(self.command, url.path, query)
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = respond

    def log_message(self, *_: Any) -> None:
        return


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--loading", type=float, default=0.0)
    parser.add_argument("--segment", type=int, default=1 << 16)
    parser.add_argument("--untracked", action="store_true")
    parser.add_argument("--like", default="vllm", choices=[*METRICS, "none"])
    parser.add_argument("--fail", default="")
    parser.add_argument("--code", type=int, default=1)
    front = Handler.front = Front(parser.parse_args(argv))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, front.on_signal)
    front.load()
    http.server.ThreadingHTTPServer.address_family = (
        socket.AF_INET6 if ":" in front.options.host else socket.AF_INET)
    http.server.ThreadingHTTPServer.daemon_threads = True
    server = http.server.ThreadingHTTPServer((front.options.host, front.options.port), Handler)  # with SO_REUSEADDR
    threading.Thread(target=server.serve_forever, daemon=True).start()
    say(f"front: serving on port {front.options.port}")
    front.until_the_end()


if __name__ == "__main__":
    main(sys.argv[1:])
