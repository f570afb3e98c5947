"""Ctrl-C, SIGTERM and a closed terminal, at any moment of the process: 130, 143 or 129, and never a traceback.

While the program is loaded, and when its work is done, a signal ends the process on the spot: there is nothing to tidy
up. In between it is an exception, so that started work can end well. It comes between two imports, not in one:
a module that is interrupted half way may swallow it, or fail with an error of its own.

Imports only modules that Python has loaded already, or nearly so: its importer has not started yet.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType, TracebackType

EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
AGAIN_S = 0.02
"""When a signal that came at a bad time comes again."""

_IMPORTING = "<frozen importlib._bootstrap>"

received = 0
"""How many signals have ended what was being waited for."""

_waiting = False


def end_at_once() -> None:
    """From now on a signal ends the process on the spot; a delayed one is dropped."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, lambda *_: None)  # not SIG_IGN, which a process that is started would inherit
    _handle(_end)


def interrupt() -> None:
    """From now on a signal is an exception: KeyboardInterrupt, or SystemExit with its code."""
    sys.excepthook, sys.unraisablehook = _uncaught, _unraisable
    _handle(_raise)


def ignore() -> None:
    """From now on a signal is too late: the process is ending."""
    _handle(signal.SIG_IGN)


def _handle(handler: Callable[[int, FrameType | None], object] | signal.Handlers) -> None:
    for number in EXIT_CODES:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as a shell that starts it in the background asks
            signal.signal(number, handler)


def _end(number: int, _: FrameType | None) -> None:
    os._exit(EXIT_CODES[signal.Signals(number)])


def _raise(number: int, frame: FrameType | None) -> None:
    global received, _waiting  # noqa: PLW0603  a process has its signals once
    if _is_importing(frame):
        if _waiting:
            _end(number, frame)
        _waiting = True
        _again(number)
        return
    _waiting = False
    received += 1
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(EXIT_CODES[signal.Signals(number)])


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTING:
            return True
        frame = frame.f_back
    return False


def _again(number: int) -> None:
    signal.signal(signal.SIGALRM, lambda _, frame: _raise(number, frame))
    signal.setitimer(signal.ITIMER_REAL, AGAIN_S)


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """End quietly when a second signal came while the first was being handled."""
    if issubclass(kind, KeyboardInterrupt):
        _end(signal.SIGINT, None)
    sys.__excepthook__(kind, error, trace)


def _unraisable(lost: sys.UnraisableHookArgs) -> None:
    """Let a signal come again where Python cannot raise an exception, as in the cleanup of an object."""
    if issubclass(lost.exc_type, KeyboardInterrupt):
        _again(signal.SIGINT)
    elif isinstance(lost.exc_value, SystemExit):
        _again(next((number for number, code in EXIT_CODES.items() if code == lost.exc_value.code), signal.SIGTERM))
    else:
        sys.__unraisablehook__(lost)
