"""External programs that tests run: which one, and whether a test without it is skipped or fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from fleetctl.demo.lifecycle import free_port


def find_program(environ: Mapping[str, str], variable: str, *names: str) -> str | None:
    """Return the path of the program named in `variable`, or of the first of `names` on PATH."""
    named = environ.get(variable)
    found = (shutil.which(name, path=environ.get("PATH")) for name in ([named] if named else names))
    return next((path for path in found if path), None)


def must_not_be_skipped(environ: Mapping[str, str]) -> bool:
    """Return whether this is CI, where a silently skipped test would check nothing."""
    return environ.get("CI", "") not in ("", "0", "false")


def must_have_programs(environ: Mapping[str, str]) -> bool:
    """Return whether nginx, Prometheus and a compiler were installed for the tests, as `.ci/run` does if it can."""
    return environ.get("FLEETCTL_PROGRAMS") == "installed"


def needed(variable: str, name: str, hint: str, *, in_ci: bool = True) -> str:
    """Return the path of a program. Without it the test is skipped, or with `in_ci` fails if CI installed it."""
    path = find_program(os.environ, variable, name, f"/usr/sbin/{name}")
    if path is None:
        absent = f"no {name} was found: {hint}, or name one in {variable}"
        (pytest.fail if in_ci and must_have_programs(os.environ) else pytest.skip)(absent)
    return path


@contextmanager
def running(log: Path, *command: str | Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program in a process of its own that writes to `log`; end it afterwards."""
    with log.open("ab") as out, subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=out,
                                                 stderr=out) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.wait(300)


def eventually(check: Callable[[], Any], what: str, log: Path, timeout_s: float = 180.0) -> Any:
    """Return the first true result of `check`, ignoring failed connections; a failure shows the program's log."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            if answer := check():
                return answer
        except (OSError, httpx.TransportError):
            pass
        assert time.monotonic() < deadline, f"did not happen within {timeout_s:g} s: {what}\n{log.read_text()}"
        time.sleep(0.05)


class Nginx:
    """A real nginx that forwards every request to one upstream of the file `upstreams`, which must exist."""

    CONFIGURATION = """\
daemon off; pid {folder}/pid; error_log stderr warn; events {{}}
http {{
    access_log off; {temporary}
    include {folder}/upstreams;
    server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://{upstream}; }} }}
}}
"""

    def __init__(self, folder: Path, upstream: str) -> None:
        self.upstreams, self.log = folder / "upstreams", folder / "log"
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        program = needed("FLEETCTL_NGINX", "nginx", "install Debian's package `nginx`")
        self._command = (program, "-p", str(folder), "-e", "stderr", "-c", str(folder / "nginx.conf"))
        self.reload = " ".join((*self._command, "-s", "reload"))
        temporary = " ".join(f"{kind}_temp_path {folder}/{kind};" for kind in (
            "client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        (folder / "nginx.conf").write_text(self.CONFIGURATION.format(
            folder=folder, port=port, upstream=upstream, temporary=temporary))

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Run nginx; end it afterwards."""
        with running(self.log, *self._command):
            yield
