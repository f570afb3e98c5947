"""Runs tests on mutants of a file: the tests are collected once, and a fork per mutant gives one function another body.

Reads {file, tests, mutants} as JSON, each mutant as its function and the whole changed source, and writes a line for
each: `killed` or `survived`. No file is written.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from functools import reduce
from types import CodeType, FunctionType
from typing import Any

import _pytest.main
import hypothesis
import pytest

SLOWER, LEAST_CPU_S, LEAST_S = 20, 2, 20
"""A mutant's tests are ended after this many times the time that they need without a change; at least after these
seconds of a processor, for a mutant without end, or of the clock, for one that waits."""
QUIETLY = ("-x", "-q", "-s", "--no-header", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning")


class Trials:
    """In place of pytest's loop over the collected tests: one loop without a change, then one per mutant."""

    def __init__(self, file: str, mutants: Sequence[tuple[str, str]]) -> None:
        self.file, self.mutants = file, mutants
        self.answers = os.fdopen(os.dup(1), "w")
        self.durations = tempfile.TemporaryFile("w+")  # noqa: SIM115  the forks write to it
        os.dup2(2, 1)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        print(report.nodeid, report.duration, sep="\t", file=self.durations, flush=True)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        began = time.monotonic()
        if fails(session, cpu_s=600, slowest_s=600):
            raise pytest.UsageError(f"{self.file}: its tests fail without any change")
        self.sort(session)
        used, silent = resource.getrusage(resource.RUSAGE_CHILDREN), os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        cpu_s = max(LEAST_CPU_S, round(SLOWER / 4 * (used.ru_utime + used.ru_stime)))
        slowest_s = max(LEAST_S, SLOWER * (time.monotonic() - began))
        module = importlib.import_module(self.file.removesuffix(".py").replace("/", "."))
        for name, source in self.mutants:
            body = code_of(compile(source, module.__file__ or "", "exec", dont_inherit=True), name.split("."))
            killed = fails(session, cpu_s=cpu_s, slowest_s=slowest_s, changed=(function_of(module, name), body))
            print("killed" if killed else "survived", file=self.answers, flush=True)
        return True

    def sort(self, session: pytest.Session) -> None:
        """Put the tests that take long last: most mutants need only the others."""
        self.durations.seek(0)
        taken = Counter[str]()
        for line in self.durations:
            name, seconds = line.rstrip().rsplit("\t", 1)
            taken[name] += float(seconds)
        session.items.sort(key=lambda item: taken[item.nodeid])


def code_of(code: CodeType, names: Sequence[str]) -> CodeType:
    """Return the code of the function with these names, a class and its method, in the code of a module."""
    return reduce(lambda outer, name: next(one for one in outer.co_consts if isinstance(one, CodeType)
                                           and one.co_name == name), names, code)


def function_of(module: object, name: str) -> FunctionType:
    """Return a function or method of a module; of a property its getter."""
    *outer, last = name.split(".")
    found: Any = vars(reduce(getattr, outer, module))[last]
    for around in ("fget", "__func__", "__wrapped__"):
        found = getattr(found, around, found)
    return found  # type: ignore[no-any-return]


def fails(
    session: pytest.Session, *, cpu_s: int, slowest_s: float, changed: tuple[FunctionType, CodeType] | None = None
) -> bool:
    """Return whether a test fails, or does not end, in a process of its own."""
    child, ended, status = os.fork(), 0, 1
    if child == 0:
        code = 1
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
            if changed:
                changed[0].__code__ = changed[1]
            _pytest.main.pytest_runtestloop(session)
            code = int(session.testsfailed > 0)
        finally:
            os._exit(code)
    deadline = time.monotonic() + slowest_s
    try:
        while not ended and time.monotonic() < deadline:
            time.sleep(0.005)
            ended, status = os.waitpid(child, os.WNOHANG)
    finally:
        if not ended:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return not ended or status != 0


def main() -> int:
    """Try the mutants; exit code other than 0 = the tests fail without a change."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends the tests, too
    asked = json.load(sys.stdin)
    # a failed property need not be explained by its smallest example
    hypothesis.settings.register_profile("no shrinking", phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate])
    hypothesis.settings.load_profile("no shrinking")
    return int(pytest.main([*QUIETLY, *asked["tests"]], plugins=[Trials(asked["file"], asked["mutants"])]))


if __name__ == "__main__":
    sys.exit(main())
