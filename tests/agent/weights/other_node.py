"""A node in a process of its own, and the test's connection to it; the process runs `node_process.py`."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


class Node:
    """A node in a process of its own."""

    def __init__(self, root: Path, artifact: str, **order: Any) -> None:
        found = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("node_process.py"))], text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": found})
        self.left: list[str] = []
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"root": str(root), "artifact": artifact, **order}) + "\n")
        self.process.stdin.flush()

    def read_report(self, *kinds: str) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            report: dict[str, Any] = json.loads(line)
            if set(kinds) & set(report):
                return report
            self.left += [report["left"]] if "left" in report else []
        raise AssertionError(f"the node ended without {kinds}: {self.left}")

    def stop(self) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.read_report("sent")

    def end(self) -> None:
        self.process.kill()
        self.process.wait(300)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()
