"""The agent's documents are typed values: no key is spelled anywhere but where foreign data is read."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import fleetctl.agent

FOLDER = Path(fleetctl.agent.__file__).parent
MODULES = sorted(FOLDER.rglob("*.py"))
UNTYPED = re.compile(r"(Dict|Mapping|MutableMapping|DefaultDict|OrderedDict|dict)\[str, (Any|Json|object)\]")
LOOKUPS = {"get", "pop", "setdefault", "__getitem__", "itemgetter"}

ALLOWED = {
    "__main__.py": ("the settings of Ray's job", {"config"}),
    "caches/software.py": ("metadata of Python's packages and environments, and groups of a match",
                           {"values", "parser", "match"}),
    "cluster.py": ("Ray's tables of nodes, jobs and groups",
                   {"record", "job", "ray.util.placement_group_table(group)"}),
    "records.py": ("Ray's records of jobs, and notes of earlier releases", {"info", "note"}),
    "node.py": ("Ray's table of actors",
                {"ray._private.state.actors(ray.get_runtime_context().get_actor_id())"}),
    "run_messages.py": ("a plan's record, which only the client reads", {"Mapping[str, Json]"}),
    "warm.py": ("resources of Ray's nodes and actors, options of an actor",
                {"amounts", "actor.required_resources", "Dict[str, Any]"}),
    "weights/connections.py": ("headers of HTTP", {"headers"}),
    "weights/proxy.py": ("groups of a match, and urllib's settings", {"found", "settings"}),
    "weights/serve.py": ("headers of HTTP, and groups of a match",
                         {"request.headers", "self._request.headers", "match"}),
    "weights/sources.py": ("headers of HTTP", {"error.headers"}),
    "weights/views.py": ("the header of a safetensors file", {"entry", "Dict[str, Any]"}),
    "wire.py": ("turns JSON into values and back", {"Dict[str, Any]", "Mapping[str, Any]"}),
}
"""By module: whose data its keys belong to, and the expressions that are read by key, or the types of such data."""


def module(path: Path) -> str:
    return path.relative_to(FOLDER).as_posix()


def spelled_keys(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and expression of each access by a spelled key, and of each mapping of anything by key.

    Names in capitals are variables of an environment, or resources of Ray, and no fields of a document.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Subscript):
            if is_key(node.slice):
                yield node.lineno, ast.unparse(node.value)
            elif UNTYPED.fullmatch(ast.unparse(node)):
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Call) and node.args and is_key(node.args[0]):
            if isinstance(node.func, ast.Attribute) and node.func.attr in LOOKUPS:
                yield node.lineno, ast.unparse(node.func.value)
            elif isinstance(node.func, ast.Name) and node.func.id in LOOKUPS:
                yield node.lineno, node.func.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and UNTYPED.fullmatch(node.value):
            yield node.lineno, node.value


def is_key(node: ast.expr) -> bool:
    return (isinstance(node, ast.Constant) and isinstance(node.value, str) and not node.value.isupper()
            and "[" not in node.value)  # that is a quoted annotation


@pytest.mark.parametrize("path", MODULES, ids=module)
def test_no_module_spells_the_keys_of_a_document(path: Path) -> None:
    _, allowed = ALLOWED.get(module(path), ("", set()))
    offenders = [f"{module(path)}:{line}: {expression}" for line, expression in spelled_keys(path.read_text())
                 if expression not in allowed]
    assert not offenders, "\n".join(["a field of a message has a type, a key has none:", *offenders])


def test_nothing_is_allowed_that_is_not_there() -> None:
    found = {module(path): {expression for _, expression in spelled_keys(path.read_text())} for path in MODULES}
    gone = {name: sorted(expressions - found.get(name, set())) for name, (_, expressions) in ALLOWED.items()}
    assert {name: expressions for name, expressions in gone.items() if expressions} == {}


@pytest.mark.parametrize(("source", "expressions"), [
    ("x = row['nodeId']", ["row"]),
    ("plan['fleet']['name'] = 1", ["plan['fleet']", "plan"]),
    ("a.b.get('code', 3)", ["a.b"]),
    ("sorted(rows, key=itemgetter('at'))", ["itemgetter"]),
    ("def f(x: Dict[str, Any]) -> 'Mapping[str, Json]': ...", ["Dict[str, Any]", "Mapping[str, Json]"]),
    ("x = y.node_id, rows[0], names[key], os.environ['HOME'], claim.get('GPU')", []),
    ("def f(x: Dict[str, float]) -> List[Any]: ...", []),
])
def test_a_spelled_key_is_found_and_nothing_else(source: str, expressions: list[str]) -> None:
    assert sorted(expression for _, expression in spelled_keys(source)) == sorted(expressions)
