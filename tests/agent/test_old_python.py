"""The agent runs on the cluster's Python, whatever it is: its code keeps to 3.9."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import fleetctl.agent

pytestmark = pytest.mark.slow

FOLDER = Path(fleetctl.agent.__file__).parent
MODULES = sorted(FOLDER.rglob("*.py"))
NEWER = {
    "typing": {"Concatenate", "Never", "NotRequired", "ParamSpec", "Required", "Self", "TypeAlias",
               "TypeGuard", "TypeVarTuple", "Unpack", "assert_never", "assert_type", "dataclass_transform", "override",
               "reveal_type", "LiteralString"},
    "itertools": {"pairwise", "batched"},
    "datetime": {"UTC"},
    "contextlib": {"aclosing", "chdir"},
    "enum": {"StrEnum"},
    "types": {"NoneType", "UnionType", "EllipsisType"},
    "inspect": {"get_annotations"},
}
NEWER_MODULES = {"tomllib"}
NEWER_BUILTINS = {"aiter", "anext", "ExceptionGroup", "BaseExceptionGroup", "EncodingWarning"}
NEWER_METHODS = {"bit_count", "add_note"}
NEWER_KEYWORDS = {"zip": {"strict"}, "dataclass": {"slots", "kw_only", "match_args"}}


def newer_parts(source: str) -> Iterator[str]:
    """Return the parts of this code that Python 3.9 does not support or would fail on."""
    try:
        tree = ast.parse(source, feature_version=(3, 9))
    except SyntaxError as error:
        yield f"line {error.lineno}: {error.msg}"
        return
    for node in ast.walk(tree):
        for trouble in _newer_parts(node, source):
            yield f"line {getattr(node, 'lineno', '?')}: {trouble}"
    postponed = any(isinstance(node, ast.ImportFrom) and node.module == "__future__"
                    and any(alias.name == "annotations" for alias in node.names) for node in tree.body)
    quoted = {id(child) for annotation in _annotations(tree) for child in ast.walk(annotation)} if postponed else set()
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and id(node) not in quoted and _union(node):
            yield f"line {node.lineno}: X | Y is evaluated when this runs"


def _newer_parts(node: ast.AST, source: str) -> Iterator[str]:
    if isinstance(node, ast.Match):
        yield "match statement"
    elif isinstance(node, (ast.With, ast.AsyncWith)) and _parenthesised(node, source):
        yield "parenthesised context managers"
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        module, names = getattr(node, "module", None) or "", {alias.name for alias in node.names}
        yield from (f"{module}.{name}" for name in names & NEWER.get(module, set()))
        yield from (f"module {name}" for name in {module, *names} & NEWER_MODULES)
    elif isinstance(node, ast.Name) and node.id in NEWER_BUILTINS:
        yield node.id
    elif isinstance(node, ast.Attribute):
        base = node.value.id if isinstance(node.value, ast.Name) else ""
        if node.attr in NEWER.get(base, set()) or node.attr in NEWER_METHODS:
            yield f"{base}.{node.attr}"
    elif isinstance(node, ast.Call):
        called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        given = {keyword.arg for keyword in node.keywords}
        yield from (f"{called}({name}=)" for name in given & NEWER_KEYWORDS.get(called, set()))


def _parenthesised(node: ast.With | ast.AsyncWith, source: str) -> bool:
    if len(node.items) == 1 and node.items[0].optional_vars is None:
        return False
    text = (ast.get_source_segment(source, node) or "").removeprefix("async").lstrip().removeprefix("with").lstrip()
    first = ast.get_source_segment(source, node.items[0].context_expr) or ""
    return text.startswith("(") and not first.startswith("(")


def _annotations(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            found = getattr(node, name, None)
            if isinstance(found, ast.expr):
                yield found


def _union(node: ast.BinOp) -> bool:
    """Whether this may be a `|` of types: numbers and dicts are never None, subscripted or named like a class."""
    return isinstance(node.op, ast.BitOr) and any(
        (isinstance(side, ast.Constant) and side.value is None)
        or (isinstance(side, ast.Subscript) and isinstance(side.value, ast.Name) and side.value.id[:1].isupper())
        or (isinstance(side, ast.Name) and (side.id in {"int", "str", "bytes", "float", "bool", "list", "dict"}
                                            or (side.id[:1].isupper() and not side.id.isupper())))
        for side in (node.left, node.right)
    )


def test_the_modules_of_the_agent_keep_to_python_3_9() -> None:
    found = {path.name: list(newer_parts(path.read_text(encoding="utf-8"))) for path in MODULES}
    assert {name: newer for name, newer in found.items() if newer} == {}


@pytest.mark.parametrize("newer", [
    "match x:\n case 1: pass", "try: pass\nexcept* ValueError: pass", "with (open(a) as b, open(c) as d): pass",
    "with (\n open(a) as b\n): pass", "zip(a, b, strict=True)", "def f(x: int | None): pass", "x: int | None = 1",
    "isinstance(x, int | str)", "Alias = Optional[int] | str", "from typing import Self", "from datetime import UTC",
    "datetime.UTC", "import tomllib", "@dataclass(slots=True)\nclass A: pass", "(5).bit_count()",
    "from __future__ import annotations\nAlias = int | None", "type X = int", "def f[T](x: T): pass",
])
def test_newer_syntax_and_names_are_found(newer: str) -> None:
    assert list(newer_parts(newer)) != []


@pytest.mark.parametrize("fine", [
    "from __future__ import annotations\ndef f(x: int | None) -> list[int] | str: pass",
    "from __future__ import annotations\nclass A:\n x: int | None = 1", "flags = os.O_RDONLY | os.O_CREAT",
    "both = {**a, **b}", "merged = first | second", "with open(a) as b, open(c) as d: pass", "with (yield): pass",
    "x: 'int | None' = 1", "zip(a, b)", "text.removeprefix('x')",
])
def test_python_3_9_passes(fine: str) -> None:
    assert list(newer_parts(fine)) == []
