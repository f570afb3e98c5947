"""How long an answer is waited for: until it is whole, or a limit is over; and who is told that it takes long."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fleetctl.inventory.bounds import Bounds
from fleetctl.inventory.fetch import Fetch, Open

if TYPE_CHECKING:
    import httpx

LOOK_UP_S = 0.2
"""How often a request that takes long looks whether to tell of it, and whether anybody still waits for it."""


class Overdue(Exception):  # not an error yet: the client says what it means for the cluster
    """The `seconds` of a request are over. `stage` = how far it came; `silent` = its address has never answered."""

    def __init__(self, seconds: float, stage: str, *, silent: bool) -> None:
        super().__init__(f"{seconds:g} s")
        self.seconds = seconds
        self.stage = stage
        self.silent = silent


@dataclass(slots=True)
class Contact:
    """What is known of an address: whether it has ever answered, and whether somebody was told of the wait for it.

    `interrupts` = how often a person has interrupted what runs. Python tells the main thread alone; whatever other
    threads were waiting for by then, they give up.
    """

    on_waiting: Callable[[], None]
    interrupts: Callable[[], int]
    answered: bool = False
    told: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def tell(self) -> None:
        """Tell of the wait, once for all requests that wait at a time."""
        with self.lock:
            first, self.told = not self.told, True
        if first:
            self.on_waiting()


class Patience:
    """The time one request has, all its tries together."""

    def __init__(self, contact: Contact, bounds: Bounds, total_s: float) -> None:
        self._contact = contact
        self._bounds = bounds
        self._total_s = total_s
        self._begun = time.monotonic()
        self._stage = "connecting"
        self._interrupts = contact.interrupts()

    def trace(self, event: str, _: Mapping[str, Any]) -> None:
        """Take note of how far a try has come: connecting, tls or sent. It is httpcore that calls this."""
        if event.startswith("connection."):
            self._stage = "tls" if event == "connection.start_tls.started" else "connecting"
        elif event.startswith("http"):
            self._stage = "sent"

    @contextmanager
    def answer(self, send: Open) -> Iterator[tuple[httpx.Response, Iterator[bytes]]]:
        """Send a request and give its answer, status and headers first, and its body in parts. Raises Overdue."""
        fetch = Fetch(send)
        try:
            head = self._next_part(fetch)
            self._contact.answered = True
            yield head, iter(lambda: self._next_part(fetch), None)
            self._contact.told &= self._elapsed_s() >= self._bounds.waiting_s  # prompt again: the next wait is told
        finally:
            fetch.leave()

    def _next_part(self, fetch: Fetch) -> Any:  # noqa: ANN401  the first is an answer, the others are bytes
        while True:
            elapsed_s = self._elapsed_s()
            limit_s = self._total_s if self._contact.answered else min(self._bounds.silent_s, self._total_s)
            if elapsed_s >= limit_s:
                raise Overdue(limit_s, self._stage, silent=not self._contact.answered)
            if self._contact.interrupts() != self._interrupts:
                raise KeyboardInterrupt
            if elapsed_s >= self._bounds.waiting_s:
                self._contact.tell()
            with suppress(queue.Empty):
                return fetch.next_part(min(limit_s - elapsed_s, LOOK_UP_S))

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._begun
