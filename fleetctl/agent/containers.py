"""Container runtimes as the agent sees them: an engine whose image is missing, images of a node, a process's container.

An engine in a container is any other command line here. Which image it names, the client knows.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import Iterator, Mapping, Optional, Sequence, Set

from .processes import ancestors, environment_of

MISSING = "IMAGE_MISSING"
"""The code of an engine whose image is not on its node, so that it never ran there."""
OWN_ERRORS = (125, 255)
"""Exit codes of a runtime that could not start a container: of podman, docker and nerdctl; of apptainer."""
_SAYS_MISSING = re.compile(
    r"^(?:error|docker|nerdctl|fatal|time=.*level=fatal).*(?:"
    r"image not known|no such image|manifest unknown|pull access denied|initializing source"
    r"|errors? occurred while pulling|did not resolve to an alias|error pulling image|unable to (?:find|pull) image"
    r"|could not open image|image \S+ not found|(?:reading|fetching) manifest|failed to resolve reference)"
    r"|^unable to find image .* locally", re.IGNORECASE | re.MULTILINE)
"""What podman, docker, nerdctl and apptainer write if the image is not on the node, nor can be pulled."""
_CONTAINER_ID = re.compile(r"(?:^|[/:-])([0-9a-f]{64})(?:\.scope)?(?:/|$)", re.MULTILINE)
ANSWER_S = 20.0


def image_is_missing(exit_code: int, output: str) -> bool:
    """Return whether a runtime ended because it found no image, from its exit code and its output."""
    return exit_code in OWN_ERRORS and bool(_SAYS_MISSING.search(output))


def lacks_image(runtime: str, reference: str, environ: Mapping[str, str]) -> Optional[str]:
    """Return why a node certainly lacks an image, or None. `environ` = the environment of engines.

    A file or folder is looked up. Otherwise the runtime is asked, by its own name and with no options but the
    reference: a fleet file chooses no program that an examination runs.
    """
    if reference.startswith("/"):
        return None if os.path.exists(reference) else f"there is no {reference}"
    program = shutil.which(runtime, path=environ.get("PATH", os.defpath))
    if not program:  # a need of its own
        return None
    asked = ["image", "exists"] if runtime == "podman" else ["image", "inspect", "--format", "found"]
    try:
        done = subprocess.run([program, *asked, "--", reference], env=dict(environ), stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=ANSWER_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    no_image = runtime == "podman" or re.search(rb"no such (?:image|object)", done.stderr, re.IGNORECASE)
    return f"{runtime} has no image {reference}" if done.returncode == 1 and no_image else None


def container_of(pid: int) -> str:
    """Return the id of the container of a process, shortened as runtimes do; empty if its cgroup does not name one."""
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="replace") as groups:
            found = _CONTAINER_ID.search(groups.read())
    except OSError:
        return ""
    return found[1][:12] if found else ""


def in_other_namespaces(names: Sequence[bytes]) -> Iterator[int]:
    """Yield the processes in other PID namespaces that have one of these variables, the first of each container.

    Those of a container inside that container, and of other users unless we are root, are not visible or readable.
    """
    own = _pid_namespace("self")
    found: Set[int] = set()
    for pid in sorted(int(entry) for entry in os.listdir("/proc") if entry.isdigit()):
        namespace = _pid_namespace(str(pid))
        if namespace not in ("", own) and not found.intersection(ancestors(pid)):
            environ = environment_of(pid)
            if any(name in environ for name in names):
                found.add(pid)
                yield pid


def _pid_namespace(pid: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""
