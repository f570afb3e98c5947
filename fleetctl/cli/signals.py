"""Ctrl-C, SIGTERM and a closed terminal at any moment of the process: exit code 130, 143 or 129, and no traceback.

While the program loads, and after its work is done, a signal ends the process immediately: there is nothing to clean
up. In between it raises an exception, so that running work can end in order. The exception is never raised inside an
import: a half-imported module may swallow it, or fail with another error.

This module imports only what Python has loaded at startup, or nearly so.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType, TracebackType

EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
REDELIVER_S = 0.02
"""After this time a deferred signal is delivered again."""

_IMPORTING = "<frozen importlib._bootstrap>"

received = 0
"""How many signals have been raised as exceptions."""
last_code = 0
"""The exit code of the last of them."""

_deferred = False


def end_at_once() -> None:
    """From now on a signal ends the process immediately; a deferred one is dropped."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, lambda *_: None)  # not SIG_IGN, which child processes would inherit
    _handle(_end)


def interrupt() -> None:
    """From now on a signal raises KeyboardInterrupt, or SystemExit with its exit code."""
    sys.excepthook, sys.unraisablehook = _uncaught, _unraisable
    _handle(_raise)


def ignore() -> None:
    """From now on signals are ignored: the process is ending."""
    _handle(signal.SIG_IGN)


def _handle(handler: Callable[[int, FrameType | None], object] | signal.Handlers) -> None:
    for number in EXIT_CODES:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as set by a shell that starts it in the background
            signal.signal(number, handler)


def _end(number: int, _: FrameType | None) -> None:
    os._exit(EXIT_CODES[signal.Signals(number)])


def _raise(number: int, frame: FrameType | None) -> None:
    global received, last_code, _deferred  # noqa: PLW0603  signal handlers belong to the process
    if _is_importing(frame):
        if _deferred:
            _end(number, frame)
        _deferred = True
        _redeliver(number)
        return
    _deferred = False
    received, last_code = received + 1, EXIT_CODES[signal.Signals(number)]
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(last_code)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTING:
            return True
        frame = frame.f_back
    return False


def _redeliver(number: int) -> None:
    signal.signal(signal.SIGALRM, lambda _, frame: _raise(number, frame))
    signal.setitimer(signal.ITIMER_REAL, REDELIVER_S)


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """End quietly if a second signal came while the first was being handled."""
    if issubclass(kind, KeyboardInterrupt):
        _end(signal.SIGINT, None)
    sys.__excepthook__(kind, error, trace)


def _unraisable(lost: sys.UnraisableHookArgs) -> None:
    """Deliver a signal again if Python cannot raise its exception, as in the finalizer of an object."""
    if issubclass(lost.exc_type, KeyboardInterrupt):
        _redeliver(signal.SIGINT)
    elif isinstance(lost.exc_value, SystemExit):
        _redeliver(next((number for number, code in EXIT_CODES.items() if code == lost.exc_value.code), signal.SIGTERM))
    else:
        sys.__unraisablehook__(lost)
