"""Becomes a worker of Ray, like Ray's own script of this name, but the workers of a job import Ray only once per node.

An import takes nearly a second of CPU. Ray's dashboard starts a worker for each command that is submitted, all for one
job of its own, and a run starts one for each actor. Here the first one leaves a process behind that has imported Ray.
Each further one is a copy of it, a child of the same raylet, with its own arguments, environment, folder and output.
"""

from __future__ import annotations

import array
import ctypes
import fcntl
import gc
import importlib
import importlib.util
import json
import os
import platform
import runpy
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TextIO

CLONE = {"x86_64": 56, "aarch64": 220}
CLONE_PARENT = 0x8000
PR_SET_PDEATHSIG = 1
PYTHON = ctypes.PyDLL(None)
"""Its functions are called with Python's global lock held."""


def main() -> None:
    folder, job = os.environ.get("RAY_TMPDIR"), os.environ.get("RAY_JOB_ID")  # Ray reads the job when it is loaded
    if folder and job and platform.machine() in CLONE:
        place = Path(folder, f"workers-{os.getppid()}-{job}")
        with place.with_suffix(".lock").open("w") as lock:
            while not held(lock):
                if asked(place):
                    return
                time.sleep(0.02)
            be_asked(place, lock)
    become_worker()


def held(lock: TextIO) -> bool:
    """Take the lock that a source of workers has for its life; return whether it was free."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def asked(place: Path) -> bool:
    """Ask for a worker with this process's arguments and output; return whether the source makes it."""
    wanted = json.dumps({"arguments": sys.argv, "folder": os.getcwd(), "environ": dict(os.environ)}).encode()  # noqa: PTH109
    with socket.socket(socket.AF_UNIX) as source:
        try:
            source.connect(str(place))
            source.sendmsg([len(wanted).to_bytes(4, "big")], [
                (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [1, 2]))])
            source.sendall(wanted)
            return source.recv(1) == b"y"
        except OSError:
            return False


def be_asked(place: Path, lock: TextIO) -> None:
    """Import Ray, and copy this process whenever a worker is asked for; return in each copy."""
    PYTHON.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    sys.path[:] = [entry for entry in sys.path if entry not in os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    os.setpgid(0, os.getpgid(os.getppid()))  # Ray may end the group of the first worker
    place.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(place))
    listener.listen(100)
    importlib.import_module("ray.dashboard.modules.job.job_supervisor")
    gc.collect()
    gc.freeze()
    is_copy = copied()
    while not is_copy:
        client, _ = listener.accept()
        with client:
            size, rights, *_ = client.recvmsg(4, socket.CMSG_SPACE(8), socket.MSG_WAITALL)
            wanted = json.loads(client.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL))
            outputs = array.array("i", rights[0][2])
            is_copy = copied()
            if is_copy:
                os.dup2(outputs[0], 1)
                os.dup2(outputs[1], 2)
                os.chdir(wanted["folder"])
                os.environ.clear()
                os.environ.update(wanted["environ"])
                sys.argv = wanted["arguments"]
            else:
                client.sendall(b"y")
            for output in outputs:
                os.close(output)
    listener.close()
    lock.close()


def copied() -> bool:
    """Copy this process as a child of its own parent; return whether this is the copy."""
    PYTHON.PyOS_BeforeFork()
    if PYTHON.syscall(CLONE[platform.machine()], CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0):
        PYTHON.PyOS_AfterFork_Parent()
        return False
    PYTHON.PyOS_AfterFork_Child()
    PYTHON.prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0)
    os.setpgid(0, 0)  # as Ray starts each worker
    return True


def become_worker() -> None:
    [ray_folder] = importlib.util.find_spec("ray").submodule_search_locations  # type: ignore[union-attr,misc]
    script = str(Path(ray_folder, "_private", "workers", "default_worker.py"))
    sys.argv[0] = script
    sys.path[:1] = [str(Path(script).parent), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
