"""The plain Ray script to compare starts with: `by_hand.py GCS COUNT DELAY_S GPUS`; prints seconds as JSON.

It does the minimum to start engines on cards: one actor each, which starts the process and polls it until it is ready.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request

import ray


class Replica:
    """One engine; ready when it responds."""

    def __init__(self, delay_s: float) -> None:
        url = self._start(delay_s)
        while True:
            try:
                with urllib.request.urlopen(url, timeout=2):
                    return
            except OSError:
                time.sleep(0.1)
            if self._engine.poll() is not None:  # another process had taken its port
                url = self._start(delay_s)

    def _start(self, delay_s: float) -> str:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        self._engine = subprocess.Popen(
            [sys.executable, "-m", "fleetctl.demo.stub_engine", "--port", str(port), "--startup-delay", str(delay_s)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return f"http://127.0.0.1:{port}/health"

    def stop(self) -> None:
        """End the engine."""
        self._engine.kill()
        self._engine.wait()


def main() -> None:
    """Create all replicas at once and wait until all are ready."""
    address, count, delay_s, gpus = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
    ray.init(address=address, namespace="by-hand", log_to_driver=False, logging_level="ERROR")
    begun = time.time()
    made = [ray.remote(Replica).options(
        name=f"r{number}", lifetime="detached", num_cpus=0, num_gpus=gpus).remote(delay_s) for number in range(count)]
    ray.get([one.__ray_ready__.remote() for one in made])
    print(json.dumps(time.time() - begun))
    ray.get([one.stop.remote() for one in made])
    for one in made:
        ray.kill(one)


if __name__ == "__main__":
    main()
