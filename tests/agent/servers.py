"""Processes that listen on a port until they are closed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

LISTEN = """\
import socket, sys, time
server = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
server.bind((sys.argv[1], int(sys.argv[2])))
server.listen()
print(server.getsockname()[1], flush=True)
sys.stdin.read()
"""


class Server:
    """A process that listens until it is closed."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self.process = subprocess.Popen([sys.executable, "-I", "-S", "-c", LISTEN, host, str(port)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        self.pid = self.process.pid

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(300)
        self.process.stdout.close()


Serve = Callable[..., Server]
