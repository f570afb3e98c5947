"""Watchers that are killed at random moments on a real Ray: `python -m tests.chaos.loop --kills 100`.

Meanwhile the branch gets good, broken, unsigned and rewound revisions, replicas and nodes end, nodes join, the
dashboard disappears, webhooks flood; some watches are of another release. In each quiet period one watcher must start
everything that Ray has room for, and nothing may have ended that was not hit.
"""

from __future__ import annotations

import argparse
import hashlib
import hmac
import itertools
import json
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from tests.chaos.fault_kinds import KINDS, FaultTargets
from tests.chaos.fleet import Actor, Fleet, Name, Watched, missing_replicas, wrong_now
from tests.chaos.litter import left_in_table
from tests.chaos.proxy import Proxy
from tests.chaos.surroundings import Cards, Origin
from tests.e2e.cluster import RayCluster, eventually, running_cluster

SHAPES = {"one": [1.0], "gang": [1.0, 1.0]}
"""Every member has a card: without cards, models may lack slots, which `missing_replicas` does not consider."""
NODES, ROUNDS_OF_EPOCH, KILLS_OF_ROUND = 4, 3, 8
FLOODED, OTHER = 0.3, 0.3
"""How often a watch gets a flood of webhooks, and how often it is of another release."""
CALM_S = 180.0
FAULTS = {"actor killed": 3.0, "agent killed": 2.0, "supervisor killed": 1.0, "job stopped": 1.0,
          "node killed": 1.0, "dashboard killed": 1.0,
          "dashboard frozen": 1.0, "proxy: cut": 1.0, "proxy: lost answer": 1.0, "proxy: 500": 1.0}
"""FaultTargets that hit the cluster, with their weights; see fault_kinds.py."""
OTHER_RELEASE = (str(Path(__file__).parent.parent / "e2e" / "faulty_cli.py"), "another release")
"""What runs a watch whose agent has another hash; the watches of both releases keep agents of one fleet."""
SECRET, FLOOD = "s3cret of the hook", 300
"""The webhooks' secret, and how many of them a flood has: half of them are right, some come twice."""
PUSHES = {"more": 3.0, "fewer": 1.0, "broken": 1.0, "unsigned": 1.0, "rewound": 1.0, "nothing": 2.0}


class Repository:
    """A bare repository and a clone of it. All good commits are signed."""

    def __init__(self, fleet: Fleet, env: dict[str, str]) -> None:
        self.bare, self.work = fleet.folder / f"{fleet.name}.git", fleet.folder / fleet.name
        self._fleet, self._env = fleet, env
        key = fleet.folder / "key"
        if not key.exists():
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
            (fleet.folder / "signers").write_text(f"a@b {key.with_suffix('.pub').read_text()}")
        for name, value in (("gpg.format", "ssh"), ("user.signingKey", str(key)), ("user.name", "a"),
                            ("user.email", "a@b"), ("gpg.ssh.allowedSignersFile", str(fleet.folder / "signers"))):
            self._git("config", "--global", name, value, folder=fleet.folder)
        self._git("init", "--quiet", "--bare", "--initial-branch=main", str(self.bare), folder=fleet.folder)
        self._git("clone", "--quiet", str(self.bare), str(self.work), folder=fleet.folder)

    def _git(self, *arguments: str, folder: Path | None = None) -> None:
        subprocess.run(["git", *arguments], cwd=folder or self.work, env=self._env, check=True, capture_output=True)

    def push(self, kind: str) -> None:
        """Push a revision. `more` is the text of the fleet's file; every other kind is undone by the next push."""
        text = self._fleet.file.read_text()
        if kind == "rewound":
            self._git("push", "--quiet", "--force", "origin", "HEAD~1:main")
            return
        if kind == "broken":
            text += "kind: ["
        elif kind in ("fewer", "unsigned"):
            document = yaml.safe_load(text)
            for model in document["spec"]["models"]:
                model["replicas"] = max(0, model["replicas"] - 1) if kind == "fewer" else 50
            text = yaml.safe_dump(document)
        (self.work / "fleet.yaml").write_text(text)
        self._git("add", "-A")
        signed = ["--no-gpg-sign"] if kind == "unsigned" else ["--gpg-sign"]
        self._git("commit", "--quiet", "--allow-empty", *signed, "-m", kind)
        self._git("push", "--quiet", "--force", "origin", "HEAD:main")


class Watcher:
    """`fleetctl watch` in a process of its own."""

    def __init__(self, log: Path, env: dict[str, str], program: tuple[str, ...], *words: str) -> None:
        self._log = log
        with log.open("w") as out:
            self.process = subprocess.Popen([sys.executable, *program, "watch", *words], env=env, text=True,
                                            stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def flood(self) -> bool:
        """Send it many webhooks, as fast as it takes them; returns whether it took any."""
        found, taken = re.search(r"webhooks at (http://\S+/push)", self._log.read_text()), 0
        for number in range(FLOOD):
            if found is None:
                return False
            body = json.dumps({"ref": "refs/heads/main", "n": number // 3}).encode()
            secret = SECRET if number % 2 else "another"
            signature = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
            with suppress(OSError):
                urllib.request.urlopen(urllib.request.Request(found[1], body, {
                    "X-GitHub-Event": "push", "X-Hub-Signature-256": f"sha256={signature}"}), timeout=5).close()
                taken += 1
        return taken > 0

    def has_printed(self) -> bool:
        """Return whether it has printed anything."""
        return bool(self._log.read_text())

    def kill(self) -> str:
        """Kill it at an arbitrary moment; return what it did wrong before, or an empty string."""
        self.process.kill()
        code, text = self.process.wait(), self._log.read_text()
        self._log.unlink()
        wrong = code != -signal.SIGKILL or "Traceback" in text or "a bug in" in text
        return f"a watcher ended with {code}: {text[-4000:]}" if wrong else ""


@dataclass
class Seen:
    """What was done and found. `violations` must stay empty."""

    kills: int = 0
    reads: int = 0
    """How many times a watcher has read the nodes."""
    rounds: int = 0
    most_watchers: int = 0
    pushes: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    calm_s: list[float] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)


class Loop:
    """Kills watchers on one cluster; random choices depend on the seed, timing does not."""

    def __init__(self, cluster: RayCluster, folder: Path, seed: int, log: Callable[[str], None]) -> None:
        self.cluster, self.folder, self.seed, self.log = cluster, folder, seed, log
        self.rng, self.seen = random.Random(seed), Seen()
        self._numbers = itertools.count()
        self._nodes: list[str] = []
        self._watchers: list[Watcher] = []
        self._proxy = Proxy(cluster.address)
        self._cards, self._origin = Cards(folder / "cards"), Origin(folder / "origin")
        self._secret = folder / "secret"
        self._secret.write_text(SECRET)

    def run(self, kills: int, seconds: float) -> Seen:
        """Kill `kills` watchers, or stop `seconds` after all nodes have joined; a round that has begun is finished."""
        self._renew_nodes()
        ends = time.monotonic() + seconds
        try:
            while self.seen.kills < kills and time.monotonic() < ends:
                self._epoch(kills, ends)
        finally:
            while self._watchers:
                self._kill()
            self._proxy.close()
            self._origin.close()
        for one in left_in_table(self.cluster, self.log):
            self._violation(one)
        self.seen.reads = self._proxy.reads
        return self.seen

    def _renew_nodes(self) -> None:
        while len(self._nodes) < NODES:
            self._nodes.append(f"w{next(self._numbers)}")
            self.cluster.add(names=self._nodes[-1:], env=self._cards.env(self._nodes[-1]),
                             disks=str(self._cards.folder))

    def _epoch(self, kills: int, ends: float) -> None:
        self._renew_nodes()
        fleet = Fleet(f"loop-{self.seed}-{next(self._numbers)}", self.folder, SHAPES, varied="one",
                      policy={"pilot": {"replicas": 1, "over": 1}})
        watched = Watched(self.cluster, fleet, self.cluster.address)
        fleet.grow(self.rng, 2.0)
        repository = Repository(fleet, watched.env)
        for _ in range(2):  # a rewind needs an earlier revision
            repository.push("more")
        for _ in range(ROUNDS_OF_EPOCH):
            if self.seen.kills < kills and time.monotonic() < ends:
                self._round(watched, repository, kills)
        while self._watchers:
            self._kill()
        self.cluster.sweep(namespaces=[fleet.name])

    def _round(self, watched: Watched, repository: Repository, kills: int) -> None:
        self.seen.rounds += 1
        before = {name: actor for name, actor in watched.actors().items() if actor.state == "ALIVE"}
        self._start(watched, repository)
        targets = FaultTargets(watched, self._proxy, self.rng, self._watchers[-1].process, self._places(watched),
                        self._cards, self._origin, nodes=self._nodes, numbers=lambda: next(self._numbers))
        counts = Counter[str]()
        for _ in range(min(KILLS_OF_ROUND, kills - self.seen.kills)):
            self._push(watched, repository)
            if self.rng.random() < 0.8:  # otherwise it may be killed before it has read anything
                eventually(self._watchers[-1].has_printed, "a watcher prints what it found")
            time.sleep(self.rng.uniform(0, 3))
            [kind] = self.rng.choices(list(FAULTS), list(FAULTS.values()))
            counts[kind] += KINDS[kind](targets) is not None
            if self.rng.random() < FLOODED:
                counts["webhook flood"] += self._watchers[-1].flood()
            time.sleep(self.rng.uniform(0, 3))
            self._kill()
            if self.rng.random() < 0.3:
                self._start(watched, repository)
            self._start(watched, repository)
            targets.client = self._watchers[-1].process
        targets.calm()
        self.seen.faults += counts
        took = self._calm(watched, repository)
        self._compare(watched, before, targets.hit)
        alive = sum(actor.state == "ALIVE" for actor in watched.actors().values())
        self.log(f"round {self.seen.rounds}: {dict(+counts)}; {self.seen.kills} watchers killed; calm after "
                 f"{took:.1f} s, {alive} of {sum(watched.fleet.wanted.values())} live")

    def _push(self, watched: Watched, repository: Repository) -> None:
        [kind] = self.rng.choices(list(PUSHES), list(PUSHES.values()))
        self.seen.pushes[kind] += 1
        if kind == "more":
            watched.fleet.grow(self.rng, NODES * 2.0)
        if kind != "nothing":
            repository.push(kind)

    def _start(self, watched: Watched, repository: Repository) -> None:
        self._watchers.append(Watcher(
            self.folder / f"log-{next(self._numbers)}", {**watched.env, "FLEETCTL_ADDRESS": self._proxy.url},
            OTHER_RELEASE if self.rng.random() < OTHER else ("-m", "fleetctl"),
            "--listen", "127.0.0.1:0", "--push-secret-file", str(self._secret),
            "--repo", str(repository.bare), "--path", "fleet.yaml", "--interval", "1s", "--require-signature",
            "--clone", str(self.folder / f"{watched.fleet.name}-clone")))
        self.seen.most_watchers = max(self.seen.most_watchers, len(self._watchers))

    def _kill(self) -> None:
        if wrong := self._watchers.pop(self.rng.randrange(len(self._watchers))).kill():
            self._violation(wrong)
        self.seen.kills += 1

    def _calm(self, watched: Watched, repository: Repository) -> float:
        """Let one watcher run undisturbed until nothing is missing; return how many seconds that took."""
        while self._watchers:
            self._kill()
        repository.push("more")
        self._start(watched, repository)
        began = time.monotonic()
        while (wrong := list(self._wrong(watched))) and time.monotonic() - began < CALM_S:
            time.sleep(0.5)
        for one in wrong:
            self._violation(one)
        self.seen.calm_s.append(time.monotonic() - began)
        return self.seen.calm_s[-1]

    def _wrong(self, watched: Watched) -> Iterator[str]:
        yield from missing_replicas(watched)
        yield from wrong_now(watched)
        yield from (f"not up: {name}: {one.state}" for name, one in watched.actors().items() if one.state != "ALIVE")

    def _compare(self, watched: Watched, before: dict[Name, Actor], hit: set[Name]) -> None:
        now = watched.actors()
        for name, actor in before.items():
            if name not in hit and now.get(name) != actor:
                self._violation(f"lost: {name} was {actor}, is {now.get(name)}, and no fault hit it")

    def _places(self, watched: Watched) -> dict[Name, set[str]]:
        rows = watched.answer("inventory")["replicas"]
        return {(row["model"], row["replicaId"]): {member["nodeId"] for member in row["members"]}
                for row in rows if row.get("fleet") == watched.fleet.name}

    def _violation(self, what: str) -> None:
        self.seen.violations.append(f"round {self.seen.rounds}: {what}")
        self.log(f"VIOLATION in round {self.seen.rounds}: {what}")


def main() -> int:
    """Run the driver and print what it did; the last line is one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.loop", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=100, help="end after this many watchers were killed")
    parser.add_argument("--seconds", type=float, default=24 * 3600.0, help="or after this time")
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="loop-") as folder, running_cluster(Path(folder)) as cluster:
        seen = Loop(cluster, Path(folder), options.seed, lambda text: print(text, flush=True)).run(
            options.kills, options.seconds)
    calm = sorted(seen.calm_s)
    print(json.dumps({
        "seed": options.seed, "kills": seen.kills, "reads": seen.reads, "rounds": seen.rounds,
        "mostWatchers": seen.most_watchers, "pushes": dict(sorted(seen.pushes.items())),
        "faults": dict(sorted(seen.faults.items())), "calmS": [round(one, 1) for one in calm],
        "seconds": round(time.monotonic() - began), "violations": seen.violations}))
    return 1 if seen.violations else 0


if __name__ == "__main__":
    sys.exit(main())
