"""Messages of a failed command: the error, what to do next, and where the bug report is."""

from __future__ import annotations

import errno
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Iterator
from shlex import quote

from fleetctl.cli.console import message_console, say, write_debug
from fleetctl.documents.names import command_line, flag_with
from fleetctl.errors import FleetctlError, FleetFileError, PlanStale
from fleetctl.version import __version__


def explain(error: FleetctlError) -> int:
    """Show an error that the user can act on; return its exit code."""
    if isinstance(error, FleetFileError):
        from fleetctl.render.problems import render_problems  # rich: slow, and needed only for errors

        render_problems(error.problems, message_console())
    for label, text in sentences(error):
        say(label, text)
    _show_traceback_for_debugging(error)
    return error.exit_code


def sentences(error: FleetctlError) -> Iterator[tuple[str, str]]:
    """Yield the sentences of an error that the user can act on, each with its label."""
    yield "error", error.message
    yield from (("moved" if isinstance(error, PlanStale) else "policy", text) for text in error.listed)
    if error.hint:
        yield "hint", error.hint


def explain_usage(error: BaseException, exit_code: int) -> int:
    """Show a usage error, and which help to read; return `exit_code`."""
    message = str(getattr(error, "message", "")) or str(error)
    format_message = getattr(error, "format_message", None)
    if callable(format_message):
        message = str(format_message())
    if message.startswith("Usage:"):  # a command group without a command shows its help
        sys.stderr.write(message + "\n")
        return exit_code
    context = getattr(error, "ctx", None)
    command = getattr(context, "command_path", "fleetctl")
    message = message.replace("\n\t", " ")  # typer lists choices one per line
    say("error", message.replace("Value error, ", ""))  # pydantic's wording, which typer passes on
    if message.startswith("Missing argument") and (files := getattr(context, "params", {}).get("files")):
        say("hint", f"-f takes a fleet file; its value may be the missing argument: {command} {quote(files[-1])}")
    if message.startswith("Missing option '--file'"):
        flag = "" if getattr(getattr(context, "command", None), "takes_files", False) else "-f "
        model = getattr(context, "params", {}).get("model")
        named = [model] if isinstance(model, str) else []
        init = " ".join(["fleetctl init", *(flag_with("--model", key) for key in named)])
        say("hint", f"name a fleet file: {command_line(command, named, f'{flag}fleet.yaml')}; `{init}` writes one")
    extra = re.search(r"extra argument(?:\(s\))? \(([0-9]+)\)", message)
    if extra and any("--replicas" in parameter.opts
                     for parameter in getattr(getattr(context, "command", None), "params", ())):
        say("hint", f"the number of replicas is a flag: --replicas {extra[1]}")
    say("hint", f"see `{command} --help`")
    return exit_code


def explain_system(error: OSError) -> int:
    """Show an error of the operating system, and save the traceback unless it is about a user's file; return 1."""
    say("error", system_sentence(error))
    if error.filename and error.errno in (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG):
        _show_traceback_for_debugging(error)
    else:
        _point_at_report(error)
    return 1


def system_sentence(error: OSError) -> str:
    """Return an error of the operating system in words."""
    about = f": {error.filename}" if error.filename else ""
    return f"{error.strerror or type(error).__name__}{about}"


def explain_unexpected(error: Exception) -> int:
    """Show a bug in fleetctl as one sentence, and save the traceback for a report; return 1."""
    say("error", unexpected_sentence(error))
    _point_at_report(error)
    return 1


def unexpected_sentence(error: Exception) -> str:
    """Return a bug in fleetctl as one sentence."""
    summary = "".join(traceback.format_exception_only(type(error), error)).strip().splitlines()
    return f"unexpected {summary[-1] if summary else type(error).__name__}; this is a bug in fleetctl"


def _point_at_report(error: Exception) -> None:
    report = _save_report(error)
    if report:
        say("hint", f"the report is in {report}; FLEETCTL_DEBUG=1 prints it here")
    _show_traceback_for_debugging(error)


def _save_report(error: Exception) -> str | None:
    try:
        descriptor, path = tempfile.mkstemp(prefix="fleetctl-report-", suffix=".txt")
        with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as report:  # noqa: PTH123  a descriptor
            report.write(f"fleetctl {__version__}, Python {sys.version}\narguments: {sys.argv[1:]!r}\n\n")
            report.writelines(traceback.format_exception(type(error), error, error.__traceback__))
    except OSError:
        return None
    return path


def _show_traceback_for_debugging(error: BaseException) -> None:
    if os.environ.get("FLEETCTL_DEBUG"):
        write_debug("".join(traceback.format_exception(type(error), error, error.__traceback__)))
