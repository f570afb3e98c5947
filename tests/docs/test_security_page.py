"""docs/security.md: every sentence has a test that shows it, and those tests exist.

A few sentences are about all of the code or about the pages themselves; their tests are here.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster_stand_in import ClusterStandIn, serve
from in_process import run_here

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "security.md"
TABLE = Path(__file__).with_name("security_sentences.yaml")
RULE = re.compile(r"\|[ |:-]+\|")
END = re.compile(r"(?<=[.])\s+(?=[A-Z`\[])")
SHOWN_BY: list[dict[str, Any]] = yaml.safe_load(TABLE.read_text(encoding="utf-8"))


def sentences(text: str) -> list[str]:
    """Every sentence of a page, and every row of its tables without the first; headings are none."""
    found: list[str] = []
    for block in re.split(r"\n\n|\n(?=- |\|)", text):
        words = " ".join(block.split())
        if words.startswith(("#", "|")) or not words:
            if words.startswith("|"):
                found.append(words)
        else:
            found += END.split(words.removeprefix("- "))
    heads = {number - 1 for number, row in enumerate(found) if RULE.fullmatch(row)}
    return [row for number, row in enumerate(found) if number not in heads and not RULE.fullmatch(row)]


def exists(test: str) -> bool:
    """Whether there is a test, `FILE::FUNCTION`, or a case file of one."""
    file, _, function = test.partition("::")
    return function in functions_of(file) if function else (ROOT / file).is_file() and "/cases/" in file


@cache
def functions_of(path: str) -> frozenset[str]:
    """The names of the test functions in a file, without collecting it; none if there is no such file."""
    if not (ROOT / path).is_file():
        return frozenset()
    parsed = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(parsed)
                     if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"))


def test_the_page_is_split_into_all_its_sentences() -> None:
    page = "# T\n\nOne `a.b` two. Three:\n\n| a | b |\n|---|---|\n| c. D | e |\n\n- F g\n  h. I.\n- J.\n"
    assert sentences(page) == ["One `a.b` two.", "Three:", "| c. D | e |", "F g h.", "I.", "J."]
    assert len(sentences(PAGE.read_text(encoding="utf-8"))) > 60


def test_every_sentence_has_an_entry_and_every_entry_a_sentence() -> None:
    listed = [" ".join(entry["says"].split()) for entry in SHOWN_BY]
    assert listed == sentences(PAGE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("entry", SHOWN_BY, ids=range(len(SHOWN_BY)))
def test_every_entry_names_tests_that_exist(entry: dict[str, Any]) -> None:
    assert entry.keys() == {"says", "tests"}
    assert entry["tests"]
    assert [one for one in entry["tests"] if not exists(one)] == []


def source_files() -> list[tuple[str, str]]:
    """The program's modules, by their path in `fleetctl/`, with their text."""
    folder = ROOT / "fleetctl"
    return [(str(path.relative_to(folder)), path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.py"))]


LISTENERS = {
    "agent/weights/": "weights and compile caches, one port per member for each",
    "cli/watch": "`watch --listen`",
    "demo/": "`demo up`",
}
"""Where the program listens, and the row of the page. Ports of engines are only reserved by it."""


def test_no_part_listens_that_has_no_row() -> None:
    listens = re.compile(r"HTTPServer\b|socketserver\.\w+Server\b|create_server\(|\.listen\(")
    found = {name for name, text in source_files() if listens.search(text)}
    rows = {next((row for prefix, row in LISTENERS.items() if name.startswith(prefix)), name) for name in found}
    assert rows == set(LISTENERS.values())
    page = PAGE.read_text(encoding="utf-8")
    assert [row for row in rows if f"| {row} |" not in page] == []


def test_the_client_neither_runs_nor_unpickles_what_it_reads() -> None:
    unsafe = re.compile(r"^\s*(?:import|from) (?:pickle|cloudpickle|marshal|shelve|dill)\b|(?<![\w.])(?:eval|exec)\("
                        r"|\b(?:unsafe|full)_load\b|(?<![\w.])yaml\.(?:Unsafe|Full)?Loader\b", re.MULTILINE)
    found = {name for name, text in source_files() if not name.startswith(("agent/", "demo/")) and unsafe.search(text)}
    own = {"fleetfile/rule_process.py", "fleetfile/rule_schema.py", "child.py"}
    assert found <= own, "these exchange values with their own subprocess"


def test_a_cluster_can_invent_nodes_and_replicas(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text(yaml.safe_dump({
        "apiVersion": "fleetctl/v1", "kind": "Fleet", "metadata": {"name": "lab"}, "spec": {"models": [{
            "key": "org/m", "replicas": 9, "workers": [{"name": "main", "members": [{
                "resources": {"gpus": 8}, "engine": {"command": ["a"]}}]}]}]}}))
    liar = ClusterStandIn()
    invented = [liar.add_node(f"invented-{number}") for number in range(9)]
    liar.add_replica("org/m", 0, invented[0])
    with serve(liar):
        done = run_here("plan", "-f", "fleet.yaml", "--address", liar.url, folder=tmp_path,
                        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})
    assert "8 to create" in done.stdout


def test_security_md_says_how_to_report_what_is_supported_and_what_to_expect() -> None:
    policy = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)$", policy, re.MULTILINE) == [
        "Report a hole", "What to expect", "Supported versions", "What is not a hole"]
    assert "](docs/security.md)" in policy
    assert "](docs/security.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
