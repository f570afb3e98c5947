"""Starts commands of fleetctl and measures them, with everything that they start.

A process of its own, with one request at a time: a line of JSON in, one out. Commands are forked from it, so that they
need not import fleetctl again; `fresh` ones begin as a user's do.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, NoReturn

POLL_S = 0.01
KILL_BYTES = 2 << 30
"""A command with more memory than this is killed, for the sake of the machine."""
ROOT = Path(__file__).parents[2]
_PR_SET_CHILD_SUBREAPER = 36
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Ended:
    """How a command ended. `code` None = it was killed, at the limit of time or of memory; `peak_bytes` = the most
    memory that it and its processes had at once; `left` = the command lines of processes that outlived it.
    """

    code: int | None
    wall_s: float
    cpu_s: float
    peak_bytes: int
    left: list[str]


class Launcher:
    """The driver's side: one process that starts commands."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.hostile.launcher"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True)

    def run(self, words: list[str], env: Mapping[str, str], folder: Path, output: Path, limit_s: float, *,
            fresh: bool = False, rules_s: float | None = None) -> Ended:
        """Run one command line; its streams are written to `output`.out and `output`.err.

        `watch` ends at its first rest. `rules_s` = a shorter limit than the product's for house rules.
        """
        request = {"words": words, "env": dict(env), "folder": str(folder), "output": str(output), "limit_s": limit_s,
                   "fresh": fresh, "rules_s": rules_s}
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return Ended(**json.loads(self._process.stdout.readline()))  # type: ignore[union-attr]

    def __enter__(self) -> Launcher:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.communicate()


def _main() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _warm_up()
    for line in sys.stdin:
        request = json.loads(line)
        sys.stdout.write(json.dumps(asdict(_measured(request))) + "\n")
        sys.stdout.flush()


def _warm_up() -> None:
    """Import what the commands under test import."""
    import importlib

    for name in ("cli.app", "cli.plan", "cli.fleet_files", "cli.propose", "cli.watch", "cli.ci.review", "cli.failures",
                 "review.compare", "review.inputs", "planner.plan", "fleetfile.rule_schema",
                 "workflow.spec_changes", "inventory.snapshot", "render.report.terminal",
                 "render.report.formats", "render.report.markdown"):
        importlib.import_module(f"fleetctl.{name}")


def _measured(request: dict[str, Any]) -> Ended:
    began, peak, ended = time.monotonic(), 0, None
    pid = os.fork()
    if pid == 0:
        _become(request)
    while ended is None and time.monotonic() - began < request["limit_s"] and peak < KILL_BYTES:
        time.sleep(POLL_S)
        peak = max(peak, sum(_resident(one) for one in _tree(pid)))
        found = os.wait4(pid, os.WNOHANG)
        ended = found if found[0] else None
    was_killed = ended is None
    wall_s, left = time.monotonic() - began, []
    if ended is None:
        _kill(_tree(pid))
        ended = os.wait4(pid, 0)
    usages = [ended[2]]
    while orphans := _children(os.getpid()):  # this process is the subreaper of all that the command left
        left += [text for one in orphans if (text := _command_line(one))]
        _kill([two for one in orphans for two in _tree(one)])
        usages += [os.wait4(one, 0)[2] for one in orphans]
    peak = max(peak, *(usage.ru_maxrss * 1024 for usage in usages))
    cpu_s = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    return Ended(None if was_killed else os.waitstatus_to_exitcode(ended[1]), wall_s, cpu_s, peak,
                 [] if was_killed else left)


def _become(request: dict[str, Any]) -> NoReturn:
    """Be the command, in the forked process."""
    code = 70
    try:
        os.setsid()
        os.chdir(request["folder"])
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        files = os.open(os.devnull, os.O_RDONLY), *(os.open(f"{request['output']}.{end}", flags, 0o600)
                                                    for end in ("out", "err"))
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        if request["fresh"]:
            program = str(Path(sys.executable).parent / "fleetctl")
            os.execve(program, [program, *request["words"]], request["env"])
        code = _run_here(request)
    except OSError as error:
        print(f"launcher: {error}", file=sys.stderr)
    finally:
        with contextlib.suppress(OSError):
            sys.stderr.flush()
        os._exit(code)


def _run_here(request: dict[str, Any]) -> int:
    os.environ.clear()
    os.environ.update(request["env"])
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, encoding="utf-8") for number, mode in enumerate("rww"))
    sys.argv = ["fleetctl", *request["words"]]
    from fleetctl.cli import entry, watch

    def rest(_: float) -> NoReturn:
        raise SystemExit(0)

    watch.time = SimpleNamespace(**{**vars(time), "sleep": rest})  # type: ignore[attr-defined]
    if request["rules_s"] is not None:
        _shorten(request["rules_s"])
    try:
        entry.main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)


def _shorten(limit_s: float) -> None:
    """Let house rules end sooner than in the product."""
    from fleetctl.fleetfile import rule_schema
    from fleetctl.watch import load_process

    rule_schema.LONGEST_S = limit_s
    load_process.LONGEST_S = 10 * limit_s  # the whole loading of a revision, also on a busy machine


def _kill(processes: list[int]) -> None:
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _tree(pid: int) -> list[int]:
    return [pid, *(two for one in _children(pid) for two in _tree(one))]


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def _command_line(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return ""


def _resident(pid: int) -> int:
    """Return the memory of a process; 0 for one that has not started its program yet, and still shares its parent's."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        parent, pages = int(state[1]), int(state[21])
    except (OSError, IndexError):
        return 0
    return 0 if parent != os.getpid() and _command_line(pid) == _command_line(parent) else pages * _PAGE


if __name__ == "__main__":
    _main()
