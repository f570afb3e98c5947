"""What no hostile change may do, judged after each command from outside of it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.hostile.case import SECRETS, Case
from tests.hostile.launcher import Ended
from tests.hostile.steps import Step

MAX_BYTES = 300 << 20
MAX_S = 15.0
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
HIDDEN = re.compile("[\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
ANNOTATION = re.compile(r"::(error|warning|notice) [^:]*::|::(error|warning|notice)::")
RUNNER_COMMAND = re.compile(r"^\s*::|##\[|##vso\[", re.MULTILINE)

Files = dict[str, tuple[int, int, int]]


@dataclass(frozen=True)
class Limits:
    """How long a command may take: `wall_s` on an idle machine, `kill_s` until it is killed."""

    wall_s: float
    kill_s: float


def files_of(case: Case) -> Files:
    """Return mode, size and time of everything that commands must not touch, by path."""
    found: Files = {}
    own = {str(case.git / name) for name in ("objects", "refs", "logs", "worktrees", "modules")}
    for top in ("work", "clone", "home", "outside", "traps"):
        for folder, folders, names in os.walk(case.folder / top):
            folders[:] = [one for one in folders if f"{folder}/{one}" not in own]
            for name in names:
                state = os.lstat(path := f"{folder}/{name}")
                found[path] = state.st_mode, state.st_size, state.st_mtime_ns
    return found


def violations(case: Case, step: Step, ended: Ended, limits: Limits, before: Files, sent: list[Any]) -> Iterator[str]:
    """Yield everything wrong about one command; `sent` = what the forge was told."""
    out, err = ((case.folder / f"tmp/step.{end}").read_bytes() for end in ("out", "err"))
    text = (out + b"\n" + err).decode(errors="backslashreplace")
    yield from _resources(ended, limits)
    if ended.code is not None and ended.code not in step.codes:
        yield f"exit code {ended.code}"
    for sign in ("Traceback (most recent call last)", "a bug in fleetctl", "Exception ignored"):
        if sign in text:
            yield f"a traceback: {text[text.index(sign):][:2000]}"
    yield from _commands_run(case, step)
    yield from _canary(case, step)
    told = text + repr(sent) + "".join(file.read_text(errors="replace") for name in ("output", "summary")
                                       if (file := case.folder / f"tmp/{name}").exists())
    for name, secret in SECRETS.items():
        if secret in told:
            yield f"shown: {name}"
    yield from _terminal(step, out.decode(errors="backslashreplace"), err.decode(errors="backslashreplace"))
    yield from _written(case, step, before)
    if ended.code is not None:
        yield from step.wrong(ended.code, out.decode(errors="replace"))


def _resources(ended: Ended, limits: Limits) -> Iterator[str]:
    if ended.code is None:
        yield f"killed after {ended.wall_s:.1f} s, {ended.cpu_s:.1f} of them on a core"
    elif ended.wall_s > limits.wall_s or ended.cpu_s > MAX_S:
        yield f"took {ended.wall_s:.1f} s, {ended.cpu_s:.1f} of them on a core"
    if ended.peak_bytes > MAX_BYTES:
        yield f"took {ended.peak_bytes >> 20} MiB"
    if ended.left:
        yield f"left behind: {ended.left}"


def _commands_run(case: Case, step: Step) -> Iterator[str]:
    for file in sorted(case.ran.iterdir()):
        if not (step.name == "propose --open" and file.name in case.may_run):
            yield f"a command of the change ran: {file.name}: {file.read_text().strip()[:200]}"
        file.unlink()


def _canary(case: Case, step: Step) -> Iterator[str]:
    for data in case.canary.taken():
        text = data.decode(errors="replace")
        got = [name for name, secret in SECRETS.items() if secret in text]
        got += ["client certificate"] if text.startswith("a client certificate") else []
        if got:
            yield f"the canary got {', '.join(got)}"
        elif not step.contacts or "FLEETCTL_ADDRESS" in step.env:
            yield f"the canary was contacted: {text[:100]!r}"


def _terminal(step: Step, out: str, err: str) -> Iterator[str]:
    shown = out + "\n" + err
    if found := CONTROL.search(shown):
        yield f"a control character was written: {shown[max(0, found.start() - 50):found.end() + 50]!r}"
    if not {"json", "jsonl"} & set(step.words) and (found := HIDDEN.search(shown)):
        yield f"a hidden character was written: {shown[max(0, found.start() - 50):found.end() + 50]!r}"
    lines = [line for line in shown.splitlines() if not (step.of_job and ANNOTATION.match(line))]
    if found := RUNNER_COMMAND.search("\n".join(lines)):
        yield f"a CI runner would obey: {found.string[found.start():][:100]!r}"


def _written(case: Case, step: Step, before: Files) -> Iterator[str]:
    after, fleets = files_of(case), Path(os.path.realpath(case.top / "fleets"))
    changed = [path for path in sorted(before.keys() | after.keys()) if before.get(path) != after.get(path)]
    allowed = step.writes and fleets.is_relative_to(case.top)
    wrong = [path for path in changed if not (  # a change may put a fleet file in the place of the folder
        allowed and Path(path).is_relative_to(fleets) and not Path(path).is_symlink()
        and (path.endswith(".yaml") or Path(path) == fleets))]
    if wrong:
        yield f"written: {', '.join(wrong[:3])}, {len(wrong)} in all"
