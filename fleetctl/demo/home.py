"""The demo's home: the folder with a demo cluster's state, token, Ray sessions and engine launcher.

The demo writes nowhere else. The folder is private to the user (0700); a folder with another owner is refused. Its path
must be short, because Ray puts Unix sockets, whose paths have at most 107 characters, deep below it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shlex
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from fleetctl.errors import FleetctlError

MAX_HOME_LENGTH = 36
"""Ray's longest socket path below it needs 71 characters."""


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The state of a demo cluster. `mark` is in the environment of all its processes and of no others."""

    mark: str
    keeper_pid: int
    address: str
    nodes_up: tuple[str, ...] = ()
    ready: bool = False


class DemoHome:
    """The folder, and the paths in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state_file = path / "cluster.json"
        """The state of the running cluster."""
        self.token_file = path / "token"
        """The cluster's token: a Ray without one runs code from any client."""
        self.launchers = path / "bin"
        """A folder on the nodes' PATH, with the stub engine."""
        self.log = path / "keeper.log"
        """The output of the keeper."""
        self.sessions = path / "ray"
        """Ray's own folder (RAY_TMPDIR): logs and sockets."""
        self.weights = path / "weights"
        """A folder for each node with the weights it has fetched: real nodes share none."""

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> DemoHome:
        """Return the home that FLEETCTL_DEMO_HOME names, or the default in the temporary folder."""
        chosen = env.get("FLEETCTL_DEMO_HOME")
        path = Path(chosen) if chosen else Path(tempfile.gettempdir()) / f"fleetctl-demo-{os.getuid()}"
        return cls(path.absolute())

    def prepare(self, python: str) -> None:
        """Create the folder, a fresh token and the engine's launcher. Raises FleetctlError for an unusable folder."""
        if len(str(self.path)) > MAX_HOME_LENGTH:
            raise FleetctlError(
                f"the path of the demo's folder {self.path} is too long: with Ray's sockets below it, it may have at "
                f"most {MAX_HOME_LENGTH} characters",
                hint="set FLEETCTL_DEMO_HOME to a shorter path, such as /tmp/fleetctl-demo")
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.check_owner()
        self.launchers.mkdir(exist_ok=True)
        _write(self.token_file, secrets.token_hex(32), 0o600)
        engine = f"#!/bin/sh\nexec {shlex.quote(python)} -m fleetctl.demo.stub_engine \"$@\"\n"
        _write(self.launchers / "stub-engine", engine, 0o700)

    def check_owner(self) -> None:
        """Raise FleetctlError unless it is a folder, owned by the user, and not accessible to others."""
        status = self.path.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
            raise FleetctlError(
                f"{self.path} is not a folder that you own and that is closed to others",
                hint="remove it, or set FLEETCTL_DEMO_HOME to another folder")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder, for one `demo up` or `demo down` at a time."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.check_owner()
        with (self.path / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def read(self) -> ClusterState | None:
        """Return the state, or None if no cluster was started or the file is incomplete."""
        try:
            stored = json.loads(self.state_file.read_text())
            return ClusterState(**{**stored, "nodes_up": tuple(stored["nodes_up"])})
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def write(self, state: ClusterState) -> None:
        """Replace the state."""
        _write(self.state_file, json.dumps(asdict(state)), 0o600)

    def clear(self) -> None:
        """Remove the files of the cluster; the lock stays."""
        for name in (self.state_file, self.token_file):
            name.unlink(missing_ok=True)
        for folder in (self.sessions, self.launchers, self.weights):
            shutil.rmtree(folder, ignore_errors=True)


def without_other_clusters(env: Mapping[str, str]) -> dict[str, str]:
    """Return `env` without the variables that name another cluster or configure another Ray."""
    return {name: value for name, value in env.items() if not name.startswith(("RAY_", "FLEETCTL_"))}


def _write(path: Path, text: str, mode: int) -> None:
    """Write a file atomically, with this mode from the start."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as out:
        out.write(text)
    fresh.replace(path)
