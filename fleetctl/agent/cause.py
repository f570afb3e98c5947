"""Why an engine ended, from its output: the first error of the process that failed first, in one line.

One failure is reported many times: by the process in which it happened, by every process that waited for that one, and
last by the one that exits. So the first report counts, and one that only refers to another (`REACTION`) counts if there
is no other. This module reads text and knows no files. Its patterns are from what vLLM, SGLang, TGI, TensorRT-LLM,
Triton, llama.cpp, PyTorch, shells and the usual argument parsers print; tests/agent/causes has examples.
"""

from __future__ import annotations

import re
from collections import deque
from datetime import datetime
from typing import Deque, Dict, List, NamedTuple, Optional, Tuple

CAUSE_CHARACTERS = 300
RECENT_S = 60.0
"""The output of an engine that was ready has errors of single requests: only this long before its end they count."""
REACTION, LOGGED, RAISED = 1, 2, 3
"""Weights: the report of another process's end; a line that a logger or a program calls an error; an exception or a
crash."""
MAX_TRACE_LINES, MAX_KEPT = 2_000, 200
MAX_LINES = 30_000
"""How many lines with words of errors are looked at: of more, the first one has long been found."""

ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
ERASE = re.compile(r"\x1b\[[0-2]?K")
STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3})Z#\d+ ")

_HINTS = (
    b"error", b"exception", b"traceback", b"panic", b"fatal", b"abort", b"terminat", b"segmentation", b"segfault",
    b"kill", b"not found", b"no such", b"cannot", b"could not", b"fail", b"out of memory", b"unable", b"assert",
    b"illegal", b"not defined", b"*** sig", b"signal", b"exiting", b"unexpectedly", b"[e]", b"uncaught", b"critical")
"""A line with none of these words says nothing of an error: a log has up to 64 MiB."""
_HINT = re.compile(b"|".join(map(re.escape, _HINTS)), re.IGNORECASE)
LONGEST_STAMP = 64

_PROCESS = re.compile(r"\(([A-Za-z][\w.:-]*(?: [\w.:-]+)*? pid=\d+(?:, ip=[\w.:]+)?)\) ?|\[(rank\d+)\]: ?")
_DATE = r"(?:\d{4}-)?\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,\d]*(?:Z|[+-]\d\d:?\d\d)?"
_LEVEL = re.compile("|".join((
    rf"(?P<a>[A-Z]+) {_DATE} (?:\[[^\]]+\]|\S+\]) ?",  # vLLM
    rf"\[?{_DATE}\]?(?: - |\s+)(?:\S+ - )?\[?(?P<b>DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL)\b\]?(?: - |:? +)",
    r"(?P<c>DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL)[:|] *",  # uvicorn, logging
    r"\[\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d\] (?:\[[^\]]*\] )*?\[(?P<d>[IWEFVD])\] ",  # TensorRT-LLM in Python
    r"\[TensorRT-LLM\] ?\[(?P<e>[A-Z]+)\] ",
    r"\[?(?P<f>[IWEF])\d{4} \d\d:\d\d:\d\d\.\d+ +(?:\d+ )?\S+:\d+\] ",  # glog: Triton, PyTorch, TensorFlow
    rf"\[{_DATE}(?: [A-Z]+\d+)*\] ?(?P<g>)",  # SGLang does not print the level
)))
_JSON_LEVEL = re.compile(r'^\{.*"(?:level|severity)": ?"(error|fatal|critical|panic)"', re.IGNORECASE)
_JSON_TEXT = re.compile(r'"(?:message|msg|event|error)": ?"((?:[^"\\]|\\.)*)"')
_QUIET = frozenset({"DEBUG", "INFO", "WARN", "WARNING", "I", "W", "V", "D", "TRACE", "NOTICE"})
_TRACEBACK = re.compile(r"(?:\+ Exception Group )?Traceback \(most recent call last\):$")
_GROUP_BARS = re.compile(r"^(?:  )*(?:\| |\+-[+-].*$|\|$|  \+ (?=Exception Group))")
_EXCEPTION = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:\[[^\]]*\])?(?:: .*|:)?$")
_NAMED_EXCEPTION = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception)(?:: .*)?$")
_DIRECT, _DURING = "The above exception was the direct cause", "During handling of the above exception"
_UNFINISHED = re.compile(r"(?:\d+ validation errors? for .*|:)$")

_RAISED = re.compile("|".join((
    r"terminate called (?:after throwing an instance of .*|without an active exception)",
    r"libc\+\+abi: terminating.*", r"Fatal Python error: .*", r"thread '.*' (?:\(\d+\) )?panicked at .*", r"panic: .*",
    r"fatal error: .*", r"(?:\S+ )?Segmentation fault.*", r"(?:!+ )?Segfault encountered.*", r"Bus error.*",
    r"Illegal instruction.*", r"\*\*\* (?:SIG\w+|Aborted|Process received signal).*", r"Caught signal \d+.*",
    r".*\bGGML_ASSERT\(.*", r".*\bCUDA error: .*", r".*\b(?:CUDA|HIP) out of memory.*", r".*cudaMalloc failed: .*",
    r".*: Assertion `.*' failed\.?", r"Exception in thread \"main\" .*",
    r"(?:\S*sh: )?(?:line \d+: |\d+: )?(?:exec: )?\S+: (?:command )?not found",
    r"(?:\S*sh: )?.*exec: .*: cannot execute.*",
    r"fleetctl: cannot (?:start|use) .*",
    r"(?!warnings?\b)\S+(?: \S+){0,3}: error: .*",  # argparse, after its usage
    r"flag provided but not defined: .*", r"docker: Error .*", r"Error: No such (?:option|command).*",
)))
_LOGGED = re.compile("|".join((
    r"(?:[\w.-]+: ){0,2}(?:fatal |internal )?error\b(?: [\w ]{1,60})?: .+",
    r"error (?:while |loading |opening |reading )?.+",
    r"(?:[\w.-]+ *: |[\w.-]+ +\w+: )(?:failed to|unable to|cannot|could not|exiting due to) .+",
    r"(?:failed to|unable to|cannot|could not) .+", r"Killed", r"Unhandled exception.*", r"Uncaught .*",
)), re.IGNORECASE)
_UNEXPECTED = re.compile(r"(?:died|exited|ended) unexpectedly")
_ABORTED = re.compile(r"Aborted(?: \(core dumped\))?$")
_REACTION = re.compile("|".join((
    r"root cause above", r"for the root cause", r"(?:died|exited|ended) unexpectedly", r"output_handler failed",
    r"Engine ?(?:Core|process) (?:failed|initialization failed|encountered an issue)", r"EngineDeadError",
    r"EngineGenerateError", r"WorkerProc initialization failed",
    r"WorkerProc hit an exception", r"Connection (?:closed by|reset by) peer", r"BrokenPipeError", r"BrokenProcessPool",
    r"EOFError$", r"ConnectionResetError", r"CancelledError", r"^KeyboardInterrupt", r"^SystemExit", r"^GeneratorExit",
    r"ChildFailedError", r"ProcessExitedException", r"ActorDiedError", r"RayActorError", r"ExceptionGroup: ",
    r"Watchdog caught", r"remote process exited", r"Shard ?(?:CannotStart|Failed)|Shard \d+ failed to start",
    r"Received a sigquit", r"Rank \d+ scheduler died", r"Child process unexpectedly failed", r"shutting down executor",
    r"Scheduler hit an exception:?$", r"Initialization failed\.? *Please see the error messages above",
    r"^(?:\S+ *:? *)?exiting due to ", r"Executor worker returned error$", r"Scheduler or DataParallelController",
)))
_HANDLED = re.compile("|".join((
    r"Exception in ASGI application", r"Error (?:in )?handling request", r"Exception ignored in", r"Logging error ---",
    r"Task exception was never retrieved", r"Future exception was never retrieved", r"Exception in callback",
    r"Error in preprocessing prompt inputs", r"Unhandled exception in event loop",
)), re.IGNORECASE)
_HARMLESS = re.compile("|".join((
    r"resource_tracker", r"warnings\.warn\(", r"\w+Warning: ", r"\b(?:0|no|without) (?:errors?|failures?)\b",
    r"Unable to register cu\w+ factory", r"computation placer already registered",
    r"error(?:s|_\w+)?[=:] ?(?:0|none)\b",
    r"TF-TRT Warning", r"cuInit: ", r"failed to automatically increase", r"ignor(?:ed|ing)\b.{0,40}$",
)), re.IGNORECASE)


class Cause(NamedTuple):
    """An error in an engine's output; `at` = the time of its line as in the log, empty if not known."""

    text: str
    weight: int
    at: str = ""


def as_shown(text: str) -> str:
    """Return output as a terminal shows it: without colors, and a progress bar only in its last state."""
    if "\r" not in text and "\x1b" not in text:
        return text
    return "\n".join(map(_shown, text.split("\n")))


def _shown(line: str) -> str:
    if "\r" in line:
        *parts, last = line.rstrip("\r").split("\r")
        line = ""
        for part in (*parts, last):
            erased = ERASE.search(part)
            part = ESCAPE.sub("", part)
            line = part if erased else part + line[len(part):]
    return ESCAPE.sub("", line).rstrip()


class _Trace:
    """A traceback that is being read; it `counts` unless a program has only reported it.

    `root` = the exception that caused the others of its chain so far; `former` = the one that was being handled when
    that one was raised.
    """

    def __init__(self, at: str, line: int, counts: bool) -> None:
        self.at, self.line, self.counts = at, line, counts
        self.root = self.former = ""
        self._in_stack, self._chained, self._unfinished, self._lines = True, False, False, 0

    @property
    def cause(self) -> str:
        """The exception that explains the chain."""
        return self.former if self.former and (not self.root or _REACTION.search(self.root)) else self.root

    def read(self, text: str) -> bool:
        """Read a line of its process, and return whether it belongs to it."""
        text = _GROUP_BARS.sub("", text)
        self._lines += 1
        begins, chains = bool(_TRACEBACK.search(text)), text.startswith((_DIRECT, _DURING))
        if begins and not (self._in_stack or self._chained or _REACTION.search(self.root)):
            return False
        if begins:
            self._in_stack, self._unfinished = True, False
        elif chains:
            self._chained, self._unfinished = True, False
            if text.startswith(_DURING):
                self.former, self.root = self.cause, ""
        elif text.strip() and self._unfinished:
            self.root, self._unfinished = f"{self.root} {text.strip()}", False
        elif text.strip() and not text[0].isspace():
            if not self._in_stack:
                return False
            if _EXCEPTION.match(text):
                self._in_stack = self._chained = False
                if not self.root or _REACTION.search(self.root):
                    self.root, self._unfinished = text, bool(_UNFINISHED.search(text))
        return self._lines <= MAX_TRACE_LINES


class CauseFinder:
    """Finds the cause in the lines of one life of an engine, which are added in their order."""

    def __init__(self) -> None:
        self._first: Dict[int, Cause] = {}
        self._line_of_first: Dict[int, int] = {}
        self._latest: Dict[int, Deque[Cause]] = {}
        self._traces: Dict[str, _Trace] = {}
        self._joining: Dict[str, Cause] = {}
        self._handled: Dict[str, bool] = {}
        self._at, self._looked = "", 0

    @property
    def is_settled(self) -> bool:
        """Whether no later line can change the cause of an engine that was never ready."""
        return RAISED in self._first and not self._joining and not self._traces

    def add(self, block: bytes) -> None:
        """Read further lines of the log, with or without stamps; most blocks have no error and are passed over."""
        lowered = block.lower()
        if self._looked < MAX_LINES and (
                self._traces or self._joining or any(hint in lowered for hint in _HINTS)):
            for line in block.rstrip(b"\n").split(b"\n"):
                if self._traces or self._joining or _HINT.search(line):
                    self._read(line.decode(errors="replace"))
                else:
                    self._handled = {}
        last = STAMP.match(block[block.rfind(b"\n", 0, -1) + 1:][:LONGEST_STAMP].decode(errors="replace"))
        self._at = last[1] if last else self._at

    def _read(self, line: str) -> None:
        self._looked += 1
        stamp = STAMP.match(line)
        if stamp:
            self._at, line = stamp[1], line[stamp.end():]
        process, level, text = _parts(_shown(line))
        if process in self._joining and text.strip():
            self._join(process, text)
        if process in self._traces and self._continues(process, level, text):
            return
        self._begin(process, level, text)

    def cause(self, recent_s: Optional[float] = None) -> Optional[Cause]:
        """Return the first error of the greatest weight; `recent_s` = only of those so many seconds before the end."""
        for process in list(self._traces):
            self._close(process)
        weights = sorted(self._first, reverse=True)
        if recent_s is not None:
            recent = (cause for weight in weights for cause in self._latest[weight]
                      if _seconds_between(cause.at, self._at) <= recent_s)
            return next(recent, None)
        return self._first[weights[0]] if weights else None

    def _begin(self, process: str, level: str, text: str) -> None:
        """Read a line outside a traceback."""
        handled = self._handled.get(process, False)
        self._handled[process] = bool(_HANDLED.search(text) or (level.startswith("W") and _HINT.search(text.encode())))
        begun = _TRACEBACK.search(text)
        if begun:
            counts = not (handled or level in _QUIET or _HANDLED.search(text))
            self._traces[process] = _Trace(self._at, self._looked, counts)
            return
        if _UNEXPECTED.search(text):  # vLLM calls the death of its EngineCore a warning
            self._keep(process, text, REACTION)
        if level in _QUIET or not text.strip() or _HARMLESS.search(text) or _HANDLED.search(text):
            return
        text = text.strip()
        if text.startswith("{") and _JSON_LEVEL.match(text):
            said = _JSON_TEXT.search(text)
            self._keep(process, said[1] if said else text, LOGGED)
        elif _RAISED.match(text):
            self._keep(process, text, RAISED)
        elif text.startswith("fleetctl: "):
            return
        elif _ABORTED.match(text):
            self._keep(process, text, REACTION)
        elif level or _LOGGED.match(text) or _NAMED_EXCEPTION.match(text):
            self._keep(process, text, LOGGED)

    def _continues(self, process: str, level: str, text: str) -> bool:
        """Read a line after the beginning of a traceback; returns whether it belongs to it or its chain."""
        trace = self._traces[process]
        if level in _QUIET and trace.counts:  # of another thread
            return False
        if trace.read(text):
            return True
        self._close(process)
        return False

    def _close(self, process: str) -> None:
        trace = self._traces.pop(process)
        if trace.cause and trace.counts:
            self._keep(process, trace.cause, RAISED, trace)

    def _join(self, process: str, text: str) -> None:
        """Add the line that completes an unfinished error."""
        begun = self._joining.pop(process)
        whole = begun._replace(text=f"{begun.text} {text.strip()}"[:CAUSE_CHARACTERS])
        if self._first[begun.weight] is begun:
            self._first[begun.weight] = whole
        if self._latest[begun.weight][-1] is begun:
            self._latest[begun.weight][-1] = whole

    def _keep(self, process: str, text: str, weight: int, trace: Optional[_Trace] = None) -> None:
        weight = REACTION if _REACTION.search(text) else weight
        cause = Cause(text[:CAUSE_CHARACTERS], weight, trace.at if trace else self._at)
        line = trace.line if trace else self._looked
        if line < self._line_of_first.get(weight, line + 1):  # a traceback ends later than others that began after it
            self._first[weight], self._line_of_first[weight] = cause, line
        self._latest.setdefault(weight, deque(maxlen=MAX_KEPT)).append(cause)
        if text.startswith("terminate called after") or (text.startswith("thread ") and text.endswith(":")):
            self._joining[process] = cause


def _parts(line: str) -> Tuple[str, str, str]:
    """Return the process, the level and the text of a line; empty = not said."""
    process = ""
    named = _PROCESS.search(line)
    if named and (named.start() == 0 or named[1]):  # a progress bar without an end may precede it
        process, line = named[1] or named[2], line[named.end():]
    level = _LEVEL.match(line)
    if level is None:
        return process, "", line
    return process, next((found for found in level.groups() if found), ""), line[level.end():]


def _seconds_between(begin: str, end: str) -> float:
    """Return the seconds between two stamps; 0 if one is not known."""
    try:
        return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()
    except ValueError:
        return 0.0


def first_of(causes: List[Optional[Cause]]) -> Optional[int]:
    """Return the index of the cause among those of a gang's members: the earliest of the greatest weight."""
    found = [(-cause.weight, cause.at, index) for index, cause in enumerate(causes) if cause]
    return min(found)[2] if found else None
