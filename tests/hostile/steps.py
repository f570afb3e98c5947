"""The commands that read a change, as a person and a CI job run them, and the right answer of each."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.hostile.case import BASE, FLEET_FILE, TOP_MODEL, Case, honest_environment, job_environment, user_environment

PROPOSED = 2
BRANCH = "more"


@dataclass(frozen=True)
class Step:
    """One command. `wrong` = what is wrong with its result, given its standard output; `contacts` = it may ask the
    address that the change names, without credentials. `writes` = it may change fleet files.
    """

    name: str
    words: list[str]
    env: Mapping[str, str]
    folder: Path
    wrong: Callable[[int, str], Iterator[str]]
    codes: tuple[int, ...] = (0, 1, 64)
    contacts: bool = False
    writes: bool = False
    of_job: bool = False


def steps_of(case: Case, forge: dict[str, str]) -> list[Step]:
    """Return the commands for a case, in an order that lets each find the checkout as it was."""
    person, job = user_environment(case), job_environment(case, forge)
    given = {**person, "FLEETCTL_ADDRESS": case.cluster}
    folder, files = _how_named(case)
    reads = ["-f", files]
    snapshot = ["--inventory", str(case.folder / "snapshot.json")]
    base, plan_file = case.rng.choice(case.base_names), case.folder / "tmp/review.json"
    sides = case.rng.choice([["main"], ["HEAD^1"], ["HEAD^1", "HEAD"], ["main...HEAD"], [case.base]])
    ref = "change" if case.odd is None else "odd"
    proposes = ["propose", "scale", TOP_MODEL, "--replicas", str(PROPOSED), *reads]

    def checked_plan(code: int, out: str) -> Iterator[str]:
        return _wrong_plan(case, out)

    def checked_review(code: int, out: str) -> Iterator[str]:
        saved = plan_file.read_text() if plan_file.exists() else ""
        return _wrong_plan(case, saved)

    def checked_diff(code: int, out: str) -> Iterator[str]:
        return _wrong_diff(case, out)

    steps = [
        Step("validate", ["validate", *reads], person, folder, _nothing),
        Step("ci validate", ["ci", "validate", *reads], job, folder, _nothing, of_job=True),
        Step("diff", ["diff", *sides, *reads, "--format", "json"], person, folder, checked_diff),
        Step("plan --base", ["plan", "--base", base, *reads, *snapshot, "--format", "json"], person, folder,
             checked_plan),
        Step("plan --base, live", ["plan", "--base", base, *reads, "--format", "json"],
             given if case.rng.random() < 0.5 else person, folder, checked_plan, contacts=True),
        Step("ci review", ["ci", "review", *reads, "--out", str(plan_file),
                           *case.rng.choice([[], snapshot])], job, folder, checked_review, codes=(0, 1, 4, 64),
             of_job=True),
        Step("watch", ["watch", "--repo", str(case.server), "--ref", ref, "--path", "fleets", "--report-only",
                       "--format", "jsonl", "--clone", str(case.folder / "tmp/clone")],
             given if case.rng.random() < 0.5 else person, case.folder / "home",
             lambda code, out: _wrong_watch(case, ref, out), contacts=True),
        Step("propose --dry-run", [*proposes, "--dry-run"], person, folder, _nothing),
        Step("propose --branch", [*proposes, "--branch", BRANCH], person, folder,
             lambda code, out: _wrong_branch(case, code, case.git, BRANCH)),
        Step("propose --open", [*proposes, "--open", "--into", "landed", "--branch", BRANCH],
             {**person, **forge}, folder, lambda code, out: _wrong_branch(case, code, case.server, BRANCH)),
        Step("propose", proposes, person, folder, _nothing, writes=True),
    ]
    if case.odd is not None:
        steps[3:3] = [
            Step("diff of revisions", ["diff", *case.rng.choice([["main", "odd"], ["main...odd"], ["odd", "main"]]),
                                       "-f", str(case.top / "fleets"), "--format", "json"],
                 person, case.folder / "home", _nothing),
            Step("plan --base odd", ["plan", "--base", "odd", *reads, *snapshot, "--format", "json"], person, folder,
                 _nothing)]
    return [step for step in steps if case.only is None or step.name in case.only]


def _how_named(case: Case) -> tuple[Path, str]:
    """Return the folder in which commands run, and the name of the fleet there."""
    top = case.top
    ways = [(top, "fleets"), (top, "fleets/prod.yaml"), (case.folder / "home", str(top / "fleets"))]
    if (top / "fleets").is_dir():
        ways += [(top / "fleets", "."), (top / "fleets", "prod.yaml")]
    return case.rng.choice(ways)


def _nothing(code: int, out: str) -> Iterator[str]:
    return iter(())


def _document(out: str) -> dict[str, Any]:
    try:
        found = json.loads(out)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _wrong_plan(case: Case, out: str) -> Iterator[str]:
    """Compare a plan with the true base; no plan, or one that does not compare, is a refusal."""
    plan = _document(out)
    change = plan.get("change")
    if change is None:
        return
    if case.must_refuse:
        yield f"answered, though no base may be read here: {change['base']}"
        return
    rows = {row["key"]: row for row in change["models"]}
    for key, row in rows.items():
        before = (row["before"] or {}).get("wanted", 0)
        if before != BASE.get(key, 0):
            yield f"forged base: {key} wanted {before} before the change, not {BASE.get(key, 0)}"
    for one in change["differences"]:
        if one["path"] == "replicas" and one["kind"] == "changed" and one["old"] != BASE.get(one["model"]):
            yield f"forged base: {one['model']} had {one['old']} replicas, not {BASE.get(one['model'])}"
    if case.head is not None and not case.no_head:
        wanted, row = case.head[TOP_MODEL], rows.get(TOP_MODEL)
        if row is None or row["after"]["wanted"] != wanted:
            yield f"forged base: the change of {TOP_MODEL} from {BASE[TOP_MODEL]} to {wanted} is hidden: {row}"
    if change["base"]["commit"] not in (case.base, None) and not case.no_head:
        yield f"forged base: commit {change['base']['commit']}, not {case.base}"


def _wrong_diff(case: Case, out: str) -> Iterator[str]:
    found = _document(out)
    if not found:
        return
    if case.must_refuse:
        yield f"answered, though no base may be read here: {found['base']}"
        return
    if found["before"] and found["before"]["replicas"] != sum(BASE.values()):
        yield f"forged base: {found['before']['replicas']} replicas before the change, not {sum(BASE.values())}"
    if not found["before"]:
        yield "forged base: no fleet before the change"
    if case.head is not None and not case.no_head and found["after"]["replicas"] != sum(case.head.values()):
        yield f"forged change: {found['after']['replicas']} replicas after it, not {sum(case.head.values())}"


def _wrong_watch(case: Case, ref: str, out: str) -> Iterator[str]:
    commit = (case.server / "refs/heads" / ref).read_text().strip()
    for line in out.splitlines():
        told = _document(line)
        if told.get("about") == "good" and told["text"] and not commit.startswith(told["text"][:10]):
            yield f"forged revision: {told['text']} is in force, not {commit}"


def _wrong_branch(case: Case, code: int, git: Path, branch: str) -> Iterator[str]:
    """Read the new branch with git, in the one true repository."""
    if code != 0 or not case.own_branch:
        return

    def ask(*words: str) -> str:
        return subprocess.run(["git", f"--git-dir={git}", "-c", "core.fsmonitor=", "--no-replace-objects", *words],
                              env=honest_environment(), capture_output=True, text=True, check=False).stdout

    commit = ask("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}").strip()
    if not commit:
        yield f"forged checkout: the branch {branch} is not in the true repository"
        return
    if case.no_head:
        return
    if ask("rev-parse", f"{commit}^@").split() != [case.merge]:
        yield f"forged checkout: {branch} is not one commit on top of HEAD"
    changed = [line for line in ask("diff-tree", "-r", "--name-only", case.merge, commit).splitlines() if line]
    if changed != [FLEET_FILE]:
        yield f"forged checkout: {branch} changes {changed}"
