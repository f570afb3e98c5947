"""The pages about commands document every flag, code and event; every place that the walk names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from fleetctl.doctor.fleet import OTHER_STORE

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "fleetctl"
PAGES = {"apply": "apply.md", "status": "status-logs.md", "logs": "status-logs.md",
         "deploy": "verbs.md", "scale": "verbs.md", "restart": "verbs.md", "evict": "verbs.md",
         "replace": "update.md",
         "cordon": "nodes.md", "uncordon": "nodes.md", "slots": "nodes.md", "drain": "nodes.md",
         "endpoints": "endpoints.md", "capacity": "capacity.md", "what-if": "what-if.md", "map": "placement-map.md",
         "doctor": "doctor.md", "mcp": "mcp.md", "prefetch": "weights.md", "prune": "weights.md",
         "release-nodes": "kubernetes.md"}


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def flags_of(command: str) -> set[str]:
    """The flags of one command, without the flags of all commands, which are documented once."""
    from fleetctl.cli.app import COMMANDS

    return {flag for parameter in COMMANDS[command].load(command).params for flag in parameter.opts
            if flag.startswith("--")} - {"--color", "--context"}


def shared_flags() -> str:
    """The tables of the flags that commands share."""
    return "".join(page(name).split("\n## Flags\n")[1].split("\n## ")[0] for name in ("plan.md", "apply.md"))


def test_every_flag_is_on_its_page_or_a_shared_one_to_which_its_page_links() -> None:
    flags = {command: flags_of(command) for command in PAGES}
    assert [command for command in PAGES if "--address" not in flags[command]] == []
    texts = {command: page(PAGES[command]) for command in PAGES}
    elsewhere = {f"{command} {flag}": command for command in PAGES for flag in sorted(flags[command])
                 if not re.search(rf"{flag}(?![\w-])", texts[command])}
    assert [one for one in elsewhere if not re.search(rf"{one.split()[1]}(?![\w-])", shared_flags())] == []
    assert [one for one, command in elsewhere.items() if "(plan.md#flags)" not in texts[command]] == []


NOT_CODES = {"PCI_BUS_ID", "DEPENDENCIES_UNREADY", "PENDING_CREATION", "SC_CLK_TCK"} | {
    "LD_PRELOAD", "MALLOC_CONF", "OMP_NUM_THREADS", "PERFTOOLS_LOGFILE", "PERFTOOLS_PATH", "SPT_NOENV",
    "XDG_CACHE_HOME"}
"""Constants of CUDA, Ray and the kernel, and variables of other programs."""


def agent_source() -> str:
    return "".join(path.read_text() for path in sorted((PACKAGE / "agent").glob("*.py")))


def test_every_code_of_the_agent_is_explained() -> None:
    words = set(re.findall(r'"([A-Z]+(?:_[A-Z]+)+)"', agent_source())) - NOT_CODES
    variables = re.compile(r"^(RAY|FLEETCTL|CUDA)_|_(DEVICES|MODULES|CORES|CHIPS|SELECTOR)$")
    codes = {word for word in words if not variables.search(word)}
    assert {"ENGINE_EXITED", "NODE_TAKEN", "TARGET_REACHED"} <= codes
    pages = page("apply.md") + page("verbs.md") + page("doctor.md")
    assert [code for code in sorted(codes) if f"`{code}`" not in pages] == []


def test_every_code_of_the_doctor_is_explained() -> None:
    sources = "".join(path.read_text() for path in (PACKAGE / "doctor").glob("*.py"))
    codes = set(re.findall(r'"([A-Z]+(?:_[A-Z]+)+|READING)"', sources)) - OTHER_STORE
    assert len(codes) > 15
    assert [code for code in sorted(codes) if f"`{code}`" not in page("doctor.md")] == []


def test_every_explained_code_exists() -> None:
    explained = re.findall(r"^\| `([A-Z_]+)` \|", page("apply.md") + page("verbs.md"), re.MULTILINE)
    assert len(explained) > 12
    known = agent_source() + "".join(
        (PACKAGE / name).read_text() for name in ("cli/explicit.py", "cli/apply_run.py", "apply/outcome.py"))
    assert [code for code in explained if f'"{code}"' not in known] == []


def test_every_event_of_the_agent_is_explained() -> None:
    kinds = set(re.findall(r'emit\(\s*"(\w+)"', agent_source())) - {"replica"}
    assert {"version", "runSummary", "lockWaiting"} <= kinds
    outcomes = {f"replica{kind.capitalize()}" for kind in ("ready", "starting", "failed", "blocked", "skipped")}
    pages = page("apply.md") + page("doctor.md") + page("weights.md")
    assert [kind for kind in sorted(kinds | outcomes) if f"`{kind}`" not in pages] == []


PLACES = re.findall(r"`([\w/]+\.(?:py|sh))(?::([\w.]+))?`", page("walk.md"))


def test_every_place_of_the_walk_exists() -> None:
    assert len(PLACES) > 35
    paths = {file: ROOT / file if file.startswith("tests/") else PACKAGE / file for file, _ in PLACES}
    assert [file for file, path in paths.items() if not path.is_file()] == []
    assert [f"{file}:{name}" for file, name in PLACES if name and name not in names_in(paths[file])] == []


def names_in(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return found
