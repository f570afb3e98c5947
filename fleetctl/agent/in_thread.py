"""Calls that may hang: each is made in a thread of its own, and left behind there if it does not return in time."""

from __future__ import annotations

import threading
from typing import Callable, List, TypeVar

Result = TypeVar("Result")


class Late(Exception):
    """The call has not returned in time."""


def in_thread(call: Callable[[], Result], within_s: float, name: str) -> Result:
    """Return what `call` returns, or raise what it raises; raises Late after this many seconds. `name` = the thread's.

    A file server, a driver or a library may not return for good, and a socket's timeout restarts with each byte.
    """
    results: List[Result] = []
    errors: List[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    thread.join(within_s)
    if errors:
        raise errors[0]
    if not results:
        raise Late
    return results[0]
