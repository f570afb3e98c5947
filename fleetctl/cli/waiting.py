"""What an apply waits for, said whenever nothing else has been said for a while: a pipe shows no spinner.

The sign of life is the client's own. It comes also while the cluster is read, the agent starts, the dashboard does not
answer, or a call of the agent to Ray hangs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from fleetctl.cli.console import may_ask
from fleetctl.documents.events import Event
from fleetctl.documents.quantity import count_of

SILENT_S = 9.0
"""Something is said at least every ten seconds."""
TICK_S = 0.25
NAMED = 5
"""How many replicas a line names."""
OUTCOMES = ("replicaReady", "replicaStarting", "replicaFailed", "replicaBlocked", "replicaSkipped")
BEGUN = ("replicaCreated", "replicaReloading")


class Waiting:
    """What the run waits for, learnt from its events, and when something was last said. Times by `clock`, in seconds.

    `say` is called from a thread of its own; `lock` is held meanwhile, and by whoever writes anything else.
    """

    def __init__(self, say: Callable[[str, dict[str, Any]], None], clock: Callable[[], float] = time.monotonic) -> None:
        self.lock = threading.RLock()
        self._say, self._clock = say, clock
        self._said_at = self._since = clock()
        self._what, self._text, self._job = "plan", "the plan to be made", ""
        self._begun: dict[str, None] = {}
        self._thread: threading.Thread | None = None
        self._over = threading.Event()

    def __enter__(self) -> Waiting:
        """Begin, unless a question may be asked first."""
        if not may_ask():
            self.begin()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def begin(self) -> None:
        """Begin to look at the clock, unless that has begun."""
        if self._thread is None:
            self._said_at = self._clock()
            self._thread = threading.Thread(target=self._watch, name="waiting", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Say nothing more."""
        with self.lock:
            self._over.set()

    def now(self, what: str, text: str, job: str = "") -> None:
        """Note what is awaited from now on: a word for programs, and words for people. `job` = the run's job."""
        with self.lock:
            self._what, self._text, self._job, self._since = what, text, job or self._job, self._clock()

    def spoke(self) -> None:
        """Note that something is said now."""
        self._said_at = self._clock()

    def learn(self, event: Event) -> None:
        """Note what an event of the run says about what comes next."""
        extra: dict[str, Any] = event.model_extra or {}
        key = f"{extra.get('model')}/{extra.get('replicaId')}"
        with self.lock:
            self.spoke()
            if event.type in BEGUN:
                self._begun[key] = None
            elif event.type in OUTCOMES:
                self._begun.pop(key, None)
            elif event.type == "version":
                self.now("lock", "the lock of its fleet", str(extra.get("job") or ""))
            elif event.type == "lockWaiting":
                holder = extra.get("holder")
                name = holder.get("job") if isinstance(holder, dict) else None
                self.now("lock", f"the lock of its fleet, which {f'job {name}' if name else 'another run'} holds")
            elif event.type == "replanWanted":
                self.now("plan", "another plan")
            elif event.type in ("lockAcquired", "replanned", "notReplanned"):
                self.now("replicas", "")
            elif event.type == "runSummary":
                self._begun.clear()
                self.now("result", "a last look at the cluster")

    def tick(self) -> None:
        """Say what is awaited, if nothing has been said for SILENT_S."""
        with self.lock:
            now = self._clock()
            if self._over.is_set() or now - self._said_at < SILENT_S:
                return
            self.spoke()
            seconds = round(now - self._since, 1)
            text, fields = self._text or "the rest of the plan", {"awaits": self._what, "seconds": seconds}
            if self._job:
                fields["job"] = self._job
            if self._what == "replicas" and self._begun:
                names = list(self._begun)
                more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
                text = f"{count_of(len(names), 'replica')} to be ready: {', '.join(names[:NAMED])}{more}"
                fields["replicas"] = names[:NAMED]
            self._say(f"waiting for {text}, {seconds:.0f} s so far", fields)

    def _watch(self) -> None:
        while not self._over.wait(max(TICK_S, self._said_at + SILENT_S - self._clock())):
            try:
                self.tick()
            except (OSError, ValueError):  # nobody reads it any more; the command itself says so
                return
