"""One case: an honest repository, a change of it that kinds make hostile, and the checkout that a runner has of both.

All of it is written without git, except that git fills the working tree as a runner would.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.hostile.canary import Canary
from tests.hostile.objects import FILE, LINK, PROGRAM, Entry, Store

BASE = {"m/one": 1, "m/two": 2}
"""The models of the honest fleet, and how many replicas of each it wants."""
TOP_MODEL = "m/one"
FLEET_FILE = "fleets/prod.yaml"
SECRETS = {"RAY_AUTH_TOKEN": "ray-4c1dbb7f", "GITHUB_TOKEN": "ghs_8d1e07aa", "header": "header-93bd21c5",
           "neighbor": "neighbor-5f0e8812"}
"""What no output and no stranger may get: two tokens, a header, and the text of files outside the checkout."""
SNAPSHOT = {
    "formatVersion": "1.0", "kind": "Inventory", "observedAt": "2026-03-04T12:00:00Z", "source": "a test",
    "nodes": [{"id": f"n{number}", "name": f"node-{number}",
               "resources": {"total": {"GPU": 8, "CPU": 16, "memory": 1 << 40}}} for number in range(4)]}


def fleet_text(models: dict[str, int], address: str | None = None, head: str = "", spec: str = "") -> str:
    """Return a fleet file; `head` = more keys of the document, `spec` = of its spec, as YAML."""
    cluster = f"  cluster: {{address: {json.dumps(address)}}}\n" if address else ""
    rows = "".join(textwrap.dedent(f"""\
        - key: {json.dumps(key)}
          replicas: {replicas}
          workers: [{{name: main, members: [{{resources: {{gpus: 1}}, engine: {{command: [serve]}}}}]}}]
        """) for key, replicas in models.items())
    return (f"apiVersion: fleetctl/v1\nkind: Fleet\n{head}metadata: {{name: prod}}\nspec:\n{cluster}"
            f"{textwrap.indent(spec, '  ')}  models:\n{textwrap.indent(rows, '  ')}")


@dataclass
class Case:
    """What kinds may change, and what the judge knows.

    `files` = the change's tree by path. `odd` = a second commit on top of it for what no working tree can hold, in the
    branch of that name; None = there is none. `head` = the models that the change wants; None = a kind has replaced the
    fleet, so its numbers are not judged.
    """

    number: int
    folder: Path
    rng: random.Random
    canary: Canary
    cluster: str
    format: str = "sha1"
    files: dict[str, Entry] = field(default_factory=dict)
    odd: dict[str, Entry] | None = None
    head: dict[str, int] | None = None
    env: dict[str, str] = field(default_factory=dict)
    top: Path = Path()
    """The folder of the checkout. A kind may move it."""
    later: list[Callable[[], None]] = field(default_factory=list)
    """What kinds do to the finished checkout."""
    may_run: set[str] = field(default_factory=set)
    """Markers that `propose --open` may make: the configuration is the checkout's own."""
    must_refuse: bool = False
    """No base may be read here at all."""
    no_head: bool = False
    """A kind has changed what HEAD is."""
    only: set[str] | None = None
    """The commands that a kind is about; None = all."""
    scale: float = 1.0
    """The size of what is large: 1 = as large as an attacker can make it."""
    fresh: bool = False
    """The commands start as a user's do, not forked from a process that has imported fleetctl."""
    own_branch: bool = True
    """`propose --branch` belongs into the repository of the checkout."""
    base_names: list[str] = field(default_factory=lambda: ["main", "origin/main", "HEAD^1", "main..."])
    base: str = ""
    change: str = ""
    merge: str = ""
    address: str = ""
    """The cluster that the change names; "" = the honest one."""
    kinds: list[str] = field(default_factory=list)
    history: list[str] = field(default_factory=list)
    """The objects of the base: commits, trees and files."""

    @property
    def server(self) -> Path:
        """The repository on the forge."""
        return self.folder / "server.git"

    @property
    def git(self) -> Path:
        """The git folder of the checkout; a worktree's is elsewhere."""
        clone = self.folder / "clone/.git"
        return clone if clone.is_dir() else self.top / ".git"

    @property
    def store(self) -> Store:
        """The objects of the checkout; before it exists, those of the server."""
        return Store((self.git if self.git.is_dir() else self.server) / "objects", self.format)

    @property
    def honest(self) -> Store:
        """The objects of the server, which nobody has damaged."""
        return Store(self.server / "objects", self.format)

    def marker(self, name: str) -> str:
        """Return a shell command that leaves a marker and passes its input on."""
        return f"{self.folder}/traps/run {name}"

    @property
    def ran(self) -> Path:
        """The folder of the markers."""
        return self.folder / "ran"

    def many(self, number: int) -> int:
        """Return a large number, scaled."""
        return max(1, int(number * self.scale))

    def write_head(self, **more: str) -> None:
        """Write the change's fleet file again, with more keys of `fleet_text`."""
        self.files[FLEET_FILE] = Entry(FILE, self.text(**more).encode())

    def text(self, **more: str) -> str:
        """Return the change's fleet file, with more keys of `fleet_text`."""
        return fleet_text(self.head or BASE, self.address or self.cluster, **more)

    def replace_fleet(self, text: str | bytes) -> None:
        """Let the change have this instead of the fleet file."""
        self.files[FLEET_FILE] = Entry(FILE, text.encode() if isinstance(text, str) else text)
        self.head = None


def begin(folder: Path, number: int, rng: random.Random, canary: Canary, cluster: str, hash_name: str, scale: float
          ) -> Case:
    """Return a case with its honest repository, and a change that raises one number of replicas."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("server.git/objects/info", "server.git/refs/heads", "server.git/refs/pull/7", "home", "outside", "ran",
                 "traps", "tmp"):
        (folder / name).mkdir(parents=True)
    case = Case(number, folder, rng, canary, cluster, hash_name, top=folder / "work", scale=scale)
    trap = folder / "traps/run"
    trap.write_text(f"#!/bin/sh\necho \"$*\" > '{case.ran}/'\"$1\"\necho \"$GITHUB_TOKEN\" >> '{case.ran}/'\"$1\"\n"
                    "cat 2>/dev/null\n")
    trap.chmod(0o755)
    (folder / "home/.gitconfig").write_text("[user]\n\tname = Ann\n\temail = ann@example.com\n")
    (folder / "outside/neighbor.yaml").write_text(f"key: {SECRETS['neighbor']}\n")
    (folder / "snapshot.json").write_text(json.dumps(SNAPSHOT))
    case.files = {
        "README.md": Entry(FILE, b"the fleets\n"),
        FLEET_FILE: Entry(FILE, fleet_text(BASE, cluster).encode()),
        "rules/house.json": Entry(FILE, b'{"type": "object"}'),
        "tools/check.sh": Entry(PROGRAM, b"#!/bin/sh\nexit 0\n"),
        "docs/latest": Entry(LINK, b"../README.md"),
    }
    case.base = case.store.commit(case.store.folders(case.files), case.store.commit(case.store.folders({})))
    case.history = sorted(file.parent.name + file.name for file in case.store.folder.glob("??/*"))
    case.head = {**BASE, TOP_MODEL: rng.randint(3, 12)}
    case.write_head()
    return case


def finish(case: Case) -> None:
    """Commit the change, and make the runner's checkout of its merge."""
    case.change = case.store.commit((tree := case.store.folders(case.files)), case.base)
    case.merge = case.store.commit(tree, case.base, case.change, message=b"merge\n")
    refs = {"refs/heads/main": case.base, "refs/heads/change": case.change, "refs/pull/7/merge": case.merge,
            "refs/heads/landed": case.merge}
    if case.odd is not None:
        refs["refs/heads/odd"] = case.store.commit(case.store.folders(_together(case.files, case.odd)), case.change)
    _repository(case.server, case.format, "ref: refs/heads/main", refs, bare=True)
    shutil.copytree(case.server, case.git)
    own = {"refs/remotes/origin/main": case.base, "refs/heads/main": case.base, **{
        name: commit for name, commit in refs.items() if name == "refs/heads/odd"}}
    shutil.rmtree(case.git / "refs")
    _repository(case.git, case.format, case.merge, own, bare=False, remote=case.server)
    filled = subprocess.run(["git", "reset", "--quiet", "--hard"], cwd=case.folder / "work", env=honest_environment(),
                            capture_output=True, text=True, check=False)
    assert filled.returncode == 0, f"{case.kinds}: {filled.stderr}"
    for do in case.later:
        do()


def _together(files: dict[str, Entry], more: dict[str, Entry]) -> dict[str, Entry]:
    """Return the files of both; an entry takes the place of a whole folder of the same name."""
    left = {path: entry for path, entry in files.items() if not any(path.startswith(f"{name}/") for name in more)}
    return {**left, **more}


def honest_environment() -> dict[str, str]:
    """Return the environment of git commands of the driver itself."""
    return {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}


def _repository(folder: Path, hash_name: str, head: str, refs: dict[str, str], *, bare: bool, remote: Path | None = None
                ) -> None:
    version = "repositoryformatversion = 0\n" if hash_name == "sha1" else "repositoryformatversion = 1\n"
    config = f"[core]\n\tbare = {str(bare).lower()}\n\tfilemode = true\n\t{version}"
    config += "" if hash_name == "sha1" else f"[extensions]\n\tobjectformat = {hash_name}\n"
    config += f'[remote "origin"]\n\turl = {remote}\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n' if remote else ""
    config += "[gc]\n\tauto = 0\n[receive]\n\tautogc = false\n" if bare else ""
    (folder / "config").write_text(config)
    (folder / "HEAD").write_text(f"{head}\n")
    (folder / "refs").mkdir(exist_ok=True)
    for name, commit in refs.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{commit}\n")


def job_environment(case: Case, forge: dict[str, str]) -> dict[str, str]:
    """Return the environment of a job on the forge for the change, with all its credentials."""
    event = case.folder / "event.json"
    sides: dict[str, Any] = {side: {"sha": commit, "ref": ref, "repo": {"full_name": "lab/fleet"}} for side, commit, ref
                             in (("base", case.base, "main"), ("head", case.change, "change"))}
    event.write_text(json.dumps({"action": "synchronize", "number": 7, "pull_request": {"number": 7, **sides}}))
    return {**user_environment(case), **forge, "GITHUB_EVENT_PATH": str(event), "GITHUB_WORKSPACE": str(case.top),
            "GITHUB_REF": "refs/pull/7/merge", "GITHUB_RUN_ID": "99", "GITHUB_ACTOR": "ann",
            "GITHUB_SERVER_URL": "https://github.example.com", "GITHUB_OUTPUT": str(case.folder / "tmp/output"),
            "GITHUB_STEP_SUMMARY": str(case.folder / "tmp/summary")}


def user_environment(case: Case) -> dict[str, str]:
    """Return the environment of a person with access to the cluster."""
    return {"PATH": os.environ["PATH"], "HOME": str(case.folder / "home"), "TMPDIR": str(case.folder / "tmp"),
            "RAY_AUTH_TOKEN": SECRETS["RAY_AUTH_TOKEN"],
            "FLEETCTL_HEADERS": json.dumps({"X-Api-Key": SECRETS["header"]}),
            "FLEETCTL_CLIENT_CERT": str(case.canary.pair.certificate),
            "FLEETCTL_CLIENT_KEY": str(case.canary.pair.key), "SSL_CERT_FILE": str(case.canary.authority),
            "CI": "true", **case.env}
