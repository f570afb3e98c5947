"""Runs `fleetctl ...` in the tests' process as in a process of its own: with its environment, folder and streams.

Starting Python and importing everything costs half a second of CPU each time. Tests of process behavior (signals,
pipes, locales, imports) need a real process: `run_process` in conftest.py.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from fleetctl.cli.entry import run


def run_here(
    *arguments: str | Path, env: Mapping[str, str], stdin: str = "", folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run one command line with only this environment; there is no terminal."""
    words = [str(argument) for argument in arguments]
    streams = [io.TextIOWrapper(io.BytesIO(text), encoding="utf-8") for text in (stdin.encode(), b"", b"")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", None)  # the cached value of an earlier TMPDIR
        for name, stream in zip(("stdin", "stdout", "stderr"), streams, strict=True):
            patch.setattr(sys, name, stream)
        if folder is not None:
            patch.chdir(folder)
        with environment(env):
            try:
                code = run(words)
            except SystemExit as ended:
                code = ended.code if isinstance(ended.code, int) else 1
    return subprocess.CompletedProcess(words, code, *map(_written, streams[1:]))


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Let this process have only these variables for a while."""
    before = dict(os.environ)
    try:
        os.environ.clear()
        os.environ.update(variables)
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _written(stream: io.TextIOWrapper) -> str:
    stream.flush()
    written: bytes = stream.buffer.getvalue()  # type: ignore[attr-defined]
    return written.decode()
