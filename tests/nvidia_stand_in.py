"""NVIDIA's driver for machines without a card: its library and `nvidia-smi`, compiled here, over one file of cards."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.external_programs import must_have_programs

SOURCE = Path(__file__).with_suffix(".c")


@dataclass(frozen=True)
class Nvidia:
    """The stand-in. `folder` holds the library and the program; each host has a file of its own."""

    folder: Path

    def host(self, path: Path, *lines: str) -> Host:
        """Return a host with these cards: `card UUID MIB NAME` and `part UUID MIB NAME`, one per line."""
        path.write_text("".join(f"{line}\n" for line in lines))
        return Host(path, {"NVML_STAND_IN": str(path), "LD_LIBRARY_PATH": str(self.folder),
                           "PATH": f"{self.folder}{os.pathsep}{os.environ['PATH']}"})


@dataclass(frozen=True)
class Host:
    """The cards of one host, and the environment in which processes see them."""

    path: Path
    env: dict[str, str]

    def fail(self, line: str) -> None:
        """Let a card fail: `lost UUID` or `ecc UUID COUNT`."""
        with self.path.open("a") as cards:
            cards.write(f"{line}\n")

    def repair(self) -> None:
        """Let all cards work again."""
        lines = self.path.read_text().splitlines(keepends=True)
        self.path.write_text("".join(line for line in lines if not line.startswith(("lost ", "ecc "))))

    def use(self, uuid: str, pid: int, mebibytes: int) -> None:
        """Let a process use memory of a card while it lives."""
        with self.path.open("a") as cards:
            cards.write(f"use {uuid} {pid} {mebibytes}\n")


def build(folder: Path) -> Nvidia:
    """Compile it. Without a compiler the test is skipped, or fails if CI installed one."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        give_up = pytest.fail if must_have_programs(os.environ) else pytest.skip
        give_up("no C compiler for the stand-in of NVIDIA's driver")
    for name, flags in (("libnvidia-ml.so.1", ("-shared", "-fPIC")), ("nvidia-smi", ("-DNVIDIA_SMI",))):
        subprocess.run([str(compiler), "-Wall", "-Werror", *flags, str(SOURCE), "-o", str(folder / name)], check=True)
    return Nvidia(folder)
