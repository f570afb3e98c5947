"""Small changes of a source file, each of which a test should notice: found in its syntax tree, in a fixed order.

Only code inside functions is changed: no docstring, text, formatted string, annotation or decorator. A `with` stays, as
does an argument without a default.
"""

from __future__ import annotations

import ast
import copy
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

NEGATED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt}
SHIFTED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult}
OPPOSITE = {"min": "max", "max": "min", "any": "all", "all": "any"}
WITH_DEFAULT = ("get", "pop", "next", "getattr")
"""Calls whose last argument has a default."""
DROPPED = (ast.Expr, ast.AugAssign, ast.Raise, ast.Delete, ast.Continue, ast.Break, ast.For, ast.While)
SHOWN, BESIDE = 70, 6
"""Characters of a change in its name, and words beside what differs."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change in a function: `start` and `end` are offsets in the source's bytes; `name` is unique in a file."""

    function: str
    name: str
    line: int
    start: int
    end: int
    now: str

    def applied(self, source: bytes) -> bytes:
        """Return the source with the change."""
        return source[:self.start] + self.now.encode() + source[self.end:]


def mutants_of(source: bytes) -> list[Mutant]:
    """Return all mutants of a module, by position; the second of the same name in a function ends in ` (2)`."""
    starts, found, names = [0], list[Mutant](), Counter[str]()
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for function, node, now in _in_functions(ast.parse(source), ()):
        assert node.end_lineno is not None and node.end_col_offset is not None  # noqa: PT018
        start, end = (starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset)
        name = f"{function}: {_shown(ast.unparse(node), now)}"
        names[name] += 1
        found.append(Mutant(function, name if names[name] == 1 else f"{name} ({names[name]})", node.lineno, start, end,
                            f"({now})" if isinstance(node, ast.expr) else now))
    return found


def _shown(was: str, now: str) -> str:
    """Return a change as one line: whole if it is short, else the words that differ and some beside them."""
    if now == "pass":
        was = was.partition("\n")[0]  # of a loop its first line
    if len(was) + len(now) <= 2 * SHOWN:
        return f"{was} -> {now}"
    old, new = (re.findall(r"\w+|\s+|.", text) for text in (was, now))
    first = _alike(old, new)
    last = _alike(old[first:][::-1], new[first:][::-1])
    return " -> ".join(f"...{''.join(words[max(0, first - BESIDE):len(words) - max(0, last - BESIDE)])[:SHOWN]}..."
                       for words in (old, new))


def _alike(first: Sequence[str], second: Sequence[str]) -> int:
    """Return how many words both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))


def _in_functions(node: ast.AST, where: tuple[str, ...]) -> Iterator[tuple[str, ast.stmt | ast.expr, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from _in_functions(child, (*where, child.name))
        elif isinstance(child, ast.FunctionDef):
            name = ".".join((*where, child.name))
            known = {one.arg for one in (*child.args.posonlyargs, *child.args.args, *child.args.kwonlyargs)}
            for statement in child.body:
                for changed, now in _in_statement(statement, known):
                    yield name, changed, now


def _in_statement(
    node: ast.AST, known: set[str], *, is_test: bool = False
) -> Iterator[tuple[ast.stmt | ast.expr, str]]:
    """Yield the changes of a node and of everything in it; `known` = names that the function has bound so far."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):  # a docstring
        return
    if isinstance(node, (ast.JoinedStr, ast.Import, ast.ImportFrom)) or (
            isinstance(node, ast.Expr) and ast.unparse(node).startswith("super().__init__(")):  # the text of an error
        return
    if isinstance(node, ast.stmt):
        yield from ((node, now) for now in _statement(node, known))
    elif isinstance(node, ast.expr):
        yield from ((node, ast.unparse(now)) for now in _expression(node, is_test=is_test))
    tests, skipped = _tests(node), _skipped(node)
    for test in tests:
        if not isinstance(test, ast.Constant):
            yield from ((test, now) for now in ("False", "True")[:1 if isinstance(node, ast.While) else 2])
    for child in ast.iter_child_nodes(node):
        if child not in skipped:
            yield from _in_statement(child, known, is_test=child in tests)
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        known.add(node.id)


def _skipped(node: ast.AST) -> list[ast.AST]:
    """Return the parts of a node that only describe it, or are the text of an error."""
    if isinstance(node, ast.AnnAssign):
        return [node.annotation]
    if isinstance(node, (ast.FunctionDef, ast.arguments, ast.arg)):
        return [one for one in ast.iter_child_nodes(node) if not isinstance(one, ast.stmt)]
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) in ("list", "dict", "set"):
        return [node.slice]
    return []


def _tests(node: ast.AST) -> Sequence[ast.expr]:
    if isinstance(node, (ast.If, ast.While, ast.IfExp)):
        return [node.test]
    return node.ifs if isinstance(node, ast.comprehension) else []


def _statement(node: ast.stmt, known: set[str]) -> Iterator[str]:
    if isinstance(node, DROPPED) or (isinstance(node, ast.Assign) and all(
            not isinstance(one, ast.Name) or one.id in known for one in node.targets)):
        yield "pass"
    if isinstance(node, ast.Continue):
        yield "break"
    if isinstance(node, ast.Return) and not (node.value is None or isinstance(node.value, (ast.Constant, ast.Name))):
        yield "return None"


def _expression(node: ast.expr, *, is_test: bool) -> Iterator[ast.expr]:
    """Yield the changes of one expression; `is_test` = both answers have been tried in its place."""
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            for kinds in (SHIFTED,) if is_test and len(node.ops) == 1 else (SHIFTED, NEGATED):
                if kind := kinds.get(type(operator)):
                    yield _with(node, ops=[*node.ops[:place], kind(), *node.ops[place + 1:]])
    elif isinstance(node, (ast.BoolOp, ast.UnaryOp, ast.BinOp)):
        yield from _operation(node, is_test=is_test)
    elif isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
        yield from map(ast.Constant, [not node.value] if isinstance(node.value, bool) else
                       [node.value + 1, node.value - 1] if node.value > 0 else [1])
    elif isinstance(node, ast.Call):
        yield from _call(node)
    elif isinstance(node, (ast.Tuple, ast.List, ast.Set, ast.Dict, ast.Lambda)):
        yield from _container(node)
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        yield from (_with(node, slice=_with(node.slice, **{part: None})) for part in ("lower", "upper")
                    if getattr(node.slice, part) is not None)


def _operation(node: ast.BoolOp | ast.UnaryOp | ast.BinOp, *, is_test: bool) -> Iterator[ast.expr]:
    if isinstance(node, ast.BoolOp):
        yield _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
        for place in range(len(node.values)):
            left = [*node.values[:place], *node.values[place + 1:]]
            yield left[0] if len(left) == 1 else _with(node, values=left)
    elif isinstance(node, ast.BinOp):
        if kind := ARITHMETIC.get(type(node.op)):
            yield _with(node, op=kind())
        if isinstance(node.op, (ast.BitOr, ast.BitAnd, ast.Sub)):
            yield node.left
    elif isinstance(node.op, ast.USub) or (isinstance(node.op, ast.Not) and not is_test):
        yield node.operand


def _call(node: ast.Call) -> Iterator[ast.expr]:
    called = node.func.id if isinstance(node.func, ast.Name) else node.func.attr if isinstance(
        node.func, ast.Attribute) else ""
    for place in range(len(node.keywords)):
        yield _with(node, keywords=[*node.keywords[:place], *node.keywords[place + 1:]])
    if called in WITH_DEFAULT and len(node.args) > 1:
        yield _with(node, args=node.args[:-1])
    if called in OPPOSITE and isinstance(node.func, ast.Name):
        yield _with(node, func=ast.Name(OPPOSITE[called]))
    if called in ("min", "max") and len(node.args) > 1 and not node.keywords:
        yield from (one for one in node.args if not isinstance(one, ast.Starred))
    if called in ("sorted", "sort"):
        by_name = [one for one in node.keywords if one.arg != "reverse"]
        turned = [] if len(by_name) < len(node.keywords) else [ast.keyword("reverse", ast.Constant(value=True))]
        yield _with(node, keywords=[*by_name, *turned])
    if called == "sorted":
        yield ast.Call(ast.Name("list"), node.args, [])


def _container(node: ast.Tuple | ast.List | ast.Set | ast.Dict | ast.Lambda) -> Iterator[ast.expr]:
    """Yield a container without each part that is unpacked into it, and a sort key without each of its parts."""
    if isinstance(node, ast.Lambda):
        parts = node.body.elts if isinstance(node.body, ast.Tuple) else []
        yield from (_with(node, body=_with(node.body, elts=[*parts[:place], *parts[place + 1:]]))
                    for place in range(len(parts)))
    elif isinstance(node, ast.Dict):
        yield from (_with(node, keys=[*node.keys[:place], *node.keys[place + 1:]],
                          values=[*node.values[:place], *node.values[place + 1:]])
                    for place, key in enumerate(node.keys) if key is None)
    elif len(node.elts) > 1:
        yield from (_with(node, elts=[*node.elts[:place], *node.elts[place + 1:]])
                    for place, part in enumerate(node.elts) if isinstance(part, ast.Starred))


def _with(node: ast.expr, **fields: object) -> ast.expr:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed
