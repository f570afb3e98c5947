"""Start and end of the process: every outcome becomes an exit code, and no traceback is shown to the user.

`--version` answers before anything slow is imported. Click's exit code 2 for usage errors becomes 64, because 2 means
"changes present".
"""

from __future__ import annotations

import atexit
import errno
import gc
import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from fleetctl.cli import signals
from fleetctl.errors import FleetctlError, UsageError
from fleetctl.problem import as_utf8
from fleetctl.version import VERSION_LINE

USAGE, INTERRUPTED = 64, 130
QUICKER = {
    "OPENBLAS_NUM_THREADS": "1",  # plans solve small systems: threads cost more than they gain
    "PYDANTIC_DISABLE_PLUGINS": "__all__",  # pydantic would search every installed package for plugins
}
_added: set[str] = set()


def main() -> NoReturn:
    """Run the command line of this process and exit."""
    _added.update(QUICKER.keys() - os.environ.keys())
    os.environ.update({name: QUICKER[name] for name in _added})
    arguments = sys.argv[1:]
    gc.disable()  # until the command is loaded (commands.py): modules are not garbage
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by the caller, as with `>&-`; no other file may get its descriptor
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123  for the whole process
    if arguments == ["--version"]:
        sys.exit(_flushed(_print_version()))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a character outside the locale must not end a plan
    code = _flushed(_run_interruptible(arguments))
    if code in signals.EXIT_CODES.values():
        os._exit(code)  # a normal exit would join every thread, also those blocked on a request
    atexit.register(signals.ignore)
    sys.exit(code)


def callers_environment() -> dict[str, str]:
    """Return the environment without what this process added from QUICKER: engines of the demo inherit it."""
    return {name: value for name, value in os.environ.items() if name not in _added}


def _run_interruptible(arguments: Sequence[str]) -> int:
    try:
        signals.interrupt()
        return run(arguments)
    except KeyboardInterrupt:  # a second one, while the first was handled
        return INTERRUPTED
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    finally:
        signals.end_at_once()


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; raises only SystemExit.

    An error after a signal has the signal's exit code: its exception may have come from the signal's, which a library
    wraps in one of its own if it is raised in a callback.
    """
    import typer

    from fleetctl.cli import failures

    before = signals.received
    try:
        for argument in arguments:
            if as_utf8(argument) != argument:  # documents are UTF-8
                raise UsageError(f"the argument {argument!r} is not UTF-8 text",
                                 hint="rename the file, or set a locale")
        return _run_app(arguments)
    except FleetctlError as error:
        code = failures.explain(error)
    except usage_error_class() as error:
        code = failures.explain_usage(error, USAGE)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except OSError as error:
        code = _output_refused(error) if _is_of_output(error) else failures.explain_system(error)
    except Exception as error:  # noqa: BLE001  last resort: one sentence and a report, never a traceback
        code = 1 if signals.received > before else failures.explain_unexpected(error)
    return signals.last_code if signals.received > before else code


def usage_error_class() -> type[Exception]:
    """Return the class of usage errors that typer raises; newer versions of typer vendor Click."""
    import typer

    return next(cls for cls in typer.BadParameter.__mro__ if cls.__name__ == "UsageError")


def _run_app(arguments: Sequence[str]) -> int:
    from fleetctl.cli.app import build_app

    code = build_app().main(args=list(arguments), prog_name="fleetctl", standalone_mode=False)
    return code if isinstance(code, int) else 0


def _print_version() -> int:
    try:
        print(VERSION_LINE)  # noqa: T201  a console needs the imports that this shortcut avoids
    except OSError as error:
        return _output_refused(error)
    return 0


def _is_of_output(error: OSError) -> bool:
    """Return whether the error comes from writing standard output; such an error names no file."""
    if error.filename or error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
        return False
    try:
        return os.write(sys.stdout.fileno(), b"\n") == 0
    except OSError as also:
        return not isinstance(also, io.UnsupportedOperation)


def _output_refused(error: OSError) -> int:
    """Report that standard output cannot be written, and discard what is left for it; return 1."""
    sys.stderr.write(f"error: cannot write to standard output: {error.strerror}\n")
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


def _flushed(code: int) -> int:
    """Flush standard output while a failure to do so can still change the exit code."""
    from fleetctl.cli.console import leave_pipe

    try:
        sys.stdout.flush()
    except BrokenPipeError:
        leave_pipe()
    except OSError as error:
        refused = _output_refused(error)
        return code or refused
    return code
