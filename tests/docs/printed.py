"""The commands printed in README, docs and `--help`, and a reader who types them.

The reader has a fresh clone, or their own repository on pages about `fleets/prod.yaml`. fleetctl runs in this process,
against a stand-in dashboard. Only the shell syntax that the pages use is supported: pipes into fleetctl, `>`, `cd`,
`export`, `sed`, `cat`.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CLUSTER = "http://ray-head:8265"
EXAMPLES = sorted(path.stem for path in (ROOT / "fleets").iterdir())
MAY_BE_PARTIAL = {"apply", "ci", "deploy", "drain", "import", "replace", "rollout", "scale"}
"""Commands that may exit with 3 for a partial result, even without --detailed-exitcode."""


@dataclass(frozen=True)
class Command:
    """One printed command, and the output printed below it."""

    text: str
    output: tuple[str, ...] = ()


@dataclass(frozen=True)
class Block:
    """The commands of one block, typed one after another."""

    page: str
    commands: tuple[Command, ...]

    @property
    def in_own_repository(self) -> bool:
        """Whether the reader is in their own repository."""
        text = " ".join(one.text for one in self.commands)
        return not re.search(rf"fleets/({'|'.join(EXAMPLES)})|-f fleet\.yaml", text)


def blocks(page: Path) -> Iterator[Block]:
    """Yield the console blocks of a page."""
    text = page.read_text(encoding="utf-8")
    for found in re.finditer(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        commands: list[Command] = []
        for line in found[1].replace("\\\n", " ").splitlines():
            if line.startswith("$ "):
                commands.append(Command(line[2:]))
            elif commands:
                commands[-1] = Command(commands[-1].text, (*commands[-1].output, line))
        if commands:
            yield Block(page.name, tuple(commands))


def printed_in_help() -> Iterator[Block]:
    """Yield the examples in the help of every command, one block each."""
    from fleetctl.cli.app import COMMANDS, EPILOG

    helps = {"fleetctl": EPILOG}
    for name, listed in COMMANDS.items():
        command = listed.load(name)
        helps[name] = command.epilog or ""
        helps |= {f"{name} {inner}": one.epilog or "" for inner, one in getattr(command, "commands", {}).items()}
    for name, epilog in helps.items():
        for line in re.findall(r"^  (\S.*)$", epilog.partition("Exit codes:")[0], re.MULTILINE):
            yield Block(f"{name} --help", (Command(line),))


@dataclass
class Reader:
    """Types commands in a folder; `run` runs fleetctl there and returns its exit code, stdout and stderr."""

    folder: Path
    address: str
    run: Callable[[Path, list[str], str], tuple[int, str, str]]
    variables: dict[str, str] = field(default_factory=dict)

    def type(self, command: Command) -> tuple[int, str]:
        """Return the exit code and both streams; raise ValueError for an unsupported command."""
        before, fleetctl, after = self._parts(command.text)
        if fleetctl is None:
            return self._shell(before), ""
        stdin = self._output_of(before) if before else ""
        if fleetctl[0] == "import" and "-o" in fleetctl:  # import refuses to overwrite the file of an earlier command
            (self.folder / fleetctl[fleetctl.index("-o") + 1]).unlink(missing_ok=True)
        if fleetctl[0] == "init":
            out = next((word for word in fleetctl if word.endswith(".yaml")), "fleet.yaml")
            (self.folder / out).unlink(missing_ok=True)
        code, out, err = self.run(self.folder, fleetctl, stdin)
        if target := re.search(r"(?:^|\s)>{1,2}\s*(\S+)", after):
            (self.folder / Path(target[1].strip('"')).name).write_text(out)
        elif follower := re.match(r"\|\s*fleetctl (.*)", after):
            code, out, err = self.run(self.folder, shlex.split(follower[1], comments=True), out)
        return code, out + err

    def _parts(self, text: str) -> tuple[str, list[str] | None, str]:
        """Return the text before fleetctl, its arguments, and the text after them."""
        text = re.sub(r"\s# .*", "", text)
        inner = re.search(r"[$<]\(fleetctl ([^)]*)\)", text)
        if inner:
            return "", shlex.split(inner[1]), ""
        lexer = shlex.shlex(text, posix=True, punctuation_chars="|<>")
        lexer.wordchars += "$(){}[]:,=@#%+^!*"
        lexer.commenters = ""
        words = [*lexer]
        if "fleetctl" not in words or (words[0] != "fleetctl" and "|" not in words[:words.index("fleetctl")]):
            return text, None, ""
        position = words.index("fleetctl")
        rest = words[position + 1:]
        rest = rest[:next((at for at, word in enumerate(rest) if word == "#"), len(rest))]
        end = next((at for at, word in enumerate(rest) if word in ("|", ">", ">>", "<")), len(rest))
        before = text[:text.index("fleetctl")].rstrip().removesuffix("|")
        after = " ".join(rest[end:])
        if rest[end:end + 1] == ["<"]:
            before, after = f"cat {rest[end + 1]}", " ".join(rest[end + 2:])
        return before, [word.replace(CLUSTER, self.address) for word in rest[:end]], after

    def _shell(self, text: str) -> int:
        """Run a command other than fleetctl, or check that it would work."""
        first, *rest = shlex.split(text, comments=True) or ["echo"]
        if first == "cd":
            self.folder = self.folder / rest[0]
            return 0 if self.folder.is_dir() else 1
        if first == "make":
            return 0 if re.search(rf"^{rest[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE) else 1
        if first == "python" and rest[0] == "-m":
            return 0 if find_spec(rest[1]) else 1
        if first in ("sed", "cat"):
            self._output_of(text)
            return 0
        if first in ("export", "echo", "pip", "pipx", "uv", "python3", "twine", "ls", "conftest", "."):
            return 0
        raise ValueError(f"`{first}` is not supported yet: {text}")

    def _output_of(self, text: str) -> str:
        return subprocess.run(["sh", "-c", text], cwd=self.folder, check=True, capture_output=True, text=True).stdout


def succeeded(command: Command, code: int) -> bool:
    """Whether a command succeeded, or failed as the output printed below it says."""
    words = command.text.split("fleetctl ", 1)[-1].split()
    partial = "--detailed-exitcode" in words or words[0] in MAY_BE_PARTIAL
    refused = any(line.startswith(("error:", "refused:")) for line in command.output)
    return code == 0 or refused or (partial and code in (2, 3, 4))


def contains_output(printed: tuple[str, ...], output: str) -> bool:
    """Whether the output contains the printed lines in order, for any width of the terminal.

    A line `...` matches any lines, and the hash of a commit any other hash.
    """
    position, text = 0, _plain(output)
    for part in re.split(r"(?:^|\n)\.\.\.(?:\n|$)", "\n".join(printed)):
        position = text.find(_plain(part), position)
        if position < 0:
            return False
    return True


def _plain(text: str) -> str:
    return " ".join(re.sub(r"\([0-9a-f]{10}\)", "(0123456789)", text).split())
