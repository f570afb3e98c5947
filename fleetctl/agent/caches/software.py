"""What an engine is made of: its program, and the versions of the packages beside it, read from their metadata.

The engine is never started for that. `engine.version` of the fleet file is a command that prints the version, for
programs whose packages are not found: a native one, a container, a script.
"""

from __future__ import annotations

import configparser
import contextlib
import glob
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from typing import Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

WATCHED = re.compile(
    r"(torch|triton|pytorch.triton.*|triton.*|vllm.*|sglang.*|sgl.kernel.*|flashinfer.*|flash.attn.*|flash.mla|xformers"
    r"|transformers|tensorrt.*|lmdeploy|mlc.*|nvidia.*|cuda.*|jax.*|libtpu.*|intel.*|oneccl.*|onnx.*|deep.gemm|deep.ep"
    r"|aiter|xgrammar|outlines.*|compressed.tensors|torchao|torchvision|torchaudio|tilelang|quack.kernels|numba"
    r"|llvmlite|numpy|ninja|apache.tvm.*|llama.cpp.*|deepspeed.*|cupy.*|cutlass.*|setuptools|tokenizers)\Z")
"""The packages, by their names with dots, that compile, are compiled against, or decide what is compiled."""
VERSION_S, VERSION_BYTES, POLL_S = 60.0, 4096, 0.02
MOST_PACKAGES = 5000
_RELEASE = re.compile(r"/python(\d+\.\d+t?)/[^/]*-packages\Z")
_DIST = re.compile(r"(?P<name>.+?)-(?P<version>[^-]+)(?:-.*)?\.(?:dist|egg)-info\Z")
_SHEBANG = re.compile(rb"#!\s*(\S+)(?:\s+(\S+))?|'''exec' \"?([^\"\s]+)")


class Software(NamedTuple):
    """An engine's program, its version or why it is not known, and the packages beside it."""

    program: str
    engine: str
    packages: Mapping[str, str]
    unknown: str = ""


def software_of(argv: Sequence[str], env: Mapping[str, str], version: Sequence[str], cwd: Optional[str] = None,
                ) -> Software:
    """Return what an engine with this command line and environment is made of; `version` = the command for its version.

    Without `version` it is that of the package to which the program belongs.
    """
    program = program_of(argv[0], env) if argv else ""
    folders = package_folders(program, env)
    found = {**{name: text for folder in reversed(folders) for name, text, _ in packages_in(folder)}}
    packages = {name: text for name, text in found.items() if WATCHED.match(name)}
    python = next(filter(None, map(_RELEASE.search, folders)), None)
    if python:
        packages.update(python=python[1])  # bytecode and extension modules are of one release
    if version:
        printed, trouble = printed_version(version, env, cwd)
        return Software(program, printed, packages, trouble)
    if not program:
        return Software("", "", packages, f"there is no program {argv[0] if argv else ''}")
    owner = owner_of(program, argv, folders)
    if owner is None:
        return Software(program, "", packages, f"{argv[0]} belongs to no package that is known here: name a command "
                                               "that prints its version in engine.version")
    name, text, path = owner
    if is_editable(path):
        return Software(program, "", packages, f"{name} is installed from a folder (editable), whose version says "
                                               "nothing of its content: set engine.version")
    return Software(program, f"{name} {text}", packages)


def program_of(command: str, env: Mapping[str, str]) -> str:
    """Return the absolute path of a program as the engine's environment finds it; empty = there is none."""
    found = shutil.which(command, path=env.get("PATH", os.defpath))
    return os.path.abspath(found) if found else ""


def package_folders(program: str, env: Mapping[str, str]) -> List[str]:
    """Return the folders with the packages of a Python program, the first ones win; empty for any other."""
    python = python_of(program, env)
    if not python:
        return []
    prefix = os.path.dirname(os.path.dirname(python))
    release = os.path.basename(os.path.realpath(python))
    folders = [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path]
    prefixes = [prefix]
    base = _base_of(prefix)
    if base:
        prefixes.append(base)
    for place in prefixes:
        names = [release] if os.path.isdir(os.path.join(place, "lib", release)) else ["python3*"]
        for pattern in (f"lib*/{name}/*-packages" for name in (*names, "python3")):
            folders += sorted(glob.glob(os.path.join(glob.escape(place), pattern)))
    return list(dict.fromkeys(map(os.path.realpath, folders)))


def _base_of(prefix: str) -> str:
    """Return the prefix of the Python below a virtual environment that uses its packages, too; else empty."""
    with contextlib.suppress(OSError), open(os.path.join(prefix, "pyvenv.cfg"), encoding="utf-8") as lines:
        values = {name.strip().lower(): value.strip() for name, found, value in
                  (line.partition("=") for line in lines) if found}
        if values.get("include-system-site-packages", "").lower() == "true":
            return os.path.dirname(values.get("home", ""))
    return ""


def python_of(program: str, env: Mapping[str, str]) -> str:
    """Return the Python that runs a program: itself, or that of its first lines; empty = none is seen."""
    if re.match(r"python[\d.]*\Z", os.path.basename(program)):
        return program
    try:
        with open(program, "rb") as file:
            first, second = file.readline(1024), file.readline(1024)
    except OSError:
        return ""
    shebang = _SHEBANG.match(first)
    if shebang is None or not shebang[1]:
        return ""
    named = os.fsdecode(shebang[1])
    if os.path.basename(named) == "env":
        return python_of(program_of(os.fsdecode(shebang[2] or b""), env), env) if shebang[2] else ""
    if os.path.basename(named) == "sh":  # how pip writes an interpreter whose path is long
        trick = _SHEBANG.match(second)
        named = os.fsdecode(trick[3]) if trick and trick[3] else ""
    return named if re.match(r"python[\d.]*\Z", os.path.basename(named)) else ""


def packages_in(folder: str) -> Iterator[Tuple[str, str, str]]:
    """Yield name, version and metadata folder of each package in a folder, sorted."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names[:MOST_PACKAGES]:
        match = _DIST.match(name)
        if match:
            yield re.sub(r"[-_.]+", ".", match["name"]).lower(), match["version"], os.path.join(folder, name)


def owner_of(program: str, argv: Sequence[str], folders: Sequence[str]) -> Optional[Tuple[str, str, str]]:
    """Return the package of a console script, or of `python -m MODULE`: name, version, metadata folder."""
    script, module = os.path.basename(program), ""
    if re.match(r"python[\d.]*\Z", script):
        if "-m" not in argv[:-1]:
            return None
        script, module = "", argv[list(argv).index("-m") + 1].partition(".")[0]
    for folder in folders:
        for name, version, path in packages_in(folder):
            if (script and script in _scripts(path)) or (module and module in _modules(path, name)):
                return name, version, path
    return None


def _scripts(metadata: str) -> List[str]:
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    with contextlib.suppress(OSError, configparser.Error, UnicodeDecodeError):
        parser.read(os.path.join(metadata, "entry_points.txt"), encoding="utf-8")
        return list(parser["console_scripts"]) if parser.has_section("console_scripts") else []
    return []


def _modules(metadata: str, name: str) -> List[str]:
    with contextlib.suppress(OSError, UnicodeDecodeError), open(
            os.path.join(metadata, "top_level.txt"), encoding="utf-8") as lines:
        return [line.strip() for line in lines]
    return [name.replace(".", "_")]


def is_editable(metadata: str) -> bool:
    """Return whether a package is installed as a link to a folder that people edit."""
    with contextlib.suppress(OSError), open(os.path.join(metadata, "direct_url.json"), "rb") as file:
        return bool(re.search(rb'"editable"\s*:\s*true', file.read()))
    return False


def _ends_within(pid: int, seconds: float) -> bool:
    """Return whether a child ends within this time; it is not reaped."""
    until = time.monotonic() + seconds
    with contextlib.suppress(ChildProcessError):
        while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
            if time.monotonic() >= until:
                return False
            time.sleep(POLL_S)
    return True


def printed_version(command: Sequence[str], env: Mapping[str, str], cwd: Optional[str] = None,
                    within_s: float = VERSION_S) -> Tuple[str, str]:
    """Run a command that prints a version; return what it printed, and why that cannot be used.

    All that it starts ends with it: its group is killed. Its output goes to a file, so that nothing waits for a child
    that keeps a pipe open.
    """
    shown = " ".join(command)[:100]
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(list(command), env=dict(env), stdin=subprocess.DEVNULL, stdout=output,
                                       stderr=subprocess.DEVNULL, cwd=cwd, start_new_session=True)
        except (OSError, ValueError) as error:
            return "", f"engine.version ({shown}) cannot be run: {error}"
        has_ended = _ends_within(process.pid, within_s)
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)  # it is not reaped yet, so its number is that of no other group
        code = process.wait()
        if not has_ended:
            return "", f"engine.version ({shown}) has not ended within {within_s:g} s"
        output.seek(0)
        text = output.read(VERSION_BYTES + 1)
    printed = " ".join(text.decode(errors="replace").split())
    if code or not printed or len(text) > VERSION_BYTES:
        why = f"exited with code {code}" if code else "printed nothing" if not printed else "printed too much"
        return "", f"engine.version ({shown}) {why}"
    return printed, ""
