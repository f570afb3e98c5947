"""A client that sends requests to an engine while a test changes its fleet."""

from __future__ import annotations

import threading
import time

import httpx


class Poller(threading.Thread):
    """Sends one request after another; nginx does not retry them, as with requests to real engines."""

    def __init__(self, url: str, *, keep_alive: bool) -> None:
        super().__init__(daemon=True)
        self.url, self.ended = url, threading.Event()
        self.headers = {} if keep_alive else {"Connection": "close"}
        self.answered, self.failed = 0, list[str]()

    def run(self) -> None:
        # the environment is not read, because the commands of the test change it at the same time
        with httpx.Client(timeout=20, headers=self.headers, trust_env=False) as http:
            while not self.ended.wait(0.02):
                try:
                    self._send(http).raise_for_status()
                    self.answered += 1
                except httpx.HTTPError as error:
                    self.failed.append(f"{time.time():.2f} {self.headers} {error!r}")

    def _send(self, http: httpx.Client) -> httpx.Response:
        try:
            return http.post(f"{self.url}/slow", content=b"{}")
        except httpx.RemoteProtocolError:
            if self.headers:
                raise
            # nginx closes idle connections when it reloads, perhaps with a request on the way: clients retry it
            return http.post(f"{self.url}/slow", content=b"{}")
