"""Parses CEL, the language of device selectors, into a tree; what a tree means is the business of `device_selector.py`.

The whole grammar of operators, calls, selections and literals; macros are read as calls, and nothing is computed here.
After the language definition of cel-spec (doc/langdef.md, "Syntax").
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

MAX_LENGTH = 10_240
MAX_DEPTH = 60
MAX_HEIGHT = 200
MAX_DIGITS = 300

_TOKEN = re.compile(r"""
    (?P<space>[ \t\r\n\f]+|//[^\n]*)
  | (?P<number>0[xX][0-9a-fA-F]+[uU]?|[0-9]*\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+(?:[eE][+-]?[0-9]+|[uU])?)
  | (?P<text>[rRbB]{0,2}(?:\"{3}(?:[^\\]|\\.)*?\"{3}|'{3}(?:[^\\]|\\.)*?'{3}|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'))
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<sign>\|\||&&|==|!=|<=|>=|[-+*/%!<>?:.,()\[\]{}])
""", re.VERBOSE | re.DOTALL)
_BINARY = {"||": 1, "&&": 2, "==": 3, "!=": 3, "<": 3, "<=": 3, ">": 3, ">=": 3, "in": 3,
           "+": 4, "-": 4, "*": 5, "/": 5, "%": 5}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_ESCAPE = re.compile(r"\\(?:[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))", re.DOTALL)


class CelError(ValueError):
    """The text is not CEL, or more of it than a selector can be; `offset` is the character where it stops being so."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


@dataclass(frozen=True, slots=True)
class Expr:
    """A node of the tree, by its `kind`.

    `literal`: `value`; `name`: `value` is the identifier; `select`: field `value` of `parts[0]`; `index`: `parts[0]` at
    `parts[1]`; `call`: function `value` of `parts`; `method`: the same, `parts[0]` is what it is called on; `list` and
    `map`: `parts`; `unary`, `binary` and `choice`: operator `value`. `start` and `end` are offsets in the text.
    """

    kind: str
    value: object
    parts: tuple[Expr, ...]
    start: int
    end: int
    height: int = field(default=1, init=False, compare=False)

    def __post_init__(self) -> None:
        """Measure the tree: a chain of operators nests without brackets, and who reads a tree goes down all of it."""
        height = 1 + max((part.height for part in self.parts), default=0)
        if height > MAX_HEIGHT:
            raise CelError(f"a chain of more than {MAX_HEIGHT} operators", self.start)
        object.__setattr__(self, "height", height)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def parse(text: str) -> Expr:
    """Return the tree of a CEL expression; raises CelError."""
    if len(text) > MAX_LENGTH:
        raise CelError(f"longer than {MAX_LENGTH} characters", MAX_LENGTH)
    parser = _Parser(list(_tokens(text)), text)
    tree = parser.choice()
    if parser.here.kind != "end":
        raise CelError(f"{parser.here.text!r} is not expected here", parser.here.start)
    return tree


def conjuncts(tree: Expr) -> Iterator[Expr]:
    """Yield the parts of `a && b && ...`, all of which must hold."""
    if tree.kind == "binary" and tree.value == "&&":
        for part in tree.parts:
            yield from conjuncts(part)
    else:
        yield tree


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise CelError(f"{text[at]!r} cannot stand in CEL", at)
        kind = str(match.lastgroup)
        if kind != "space":
            yield _Token(kind, match[0], at)
        at = match.end()
    yield _Token("end", "", len(text))


class _Parser:
    """Precedence climbing over the tokens."""

    def __init__(self, tokens: list[_Token], text: str) -> None:
        self.tokens = tokens
        self.text = text
        self.at = 0
        self.depth = 0

    @property
    def here(self) -> _Token:
        return self.tokens[self.at]

    def take(self, *texts: str) -> _Token | None:
        """Return the next token if it is one of `texts`, and go past it."""
        token = self.here
        if token.kind in ("sign", "name") and token.text in texts:
            self.at += 1
            return token
        return None

    def must(self, text: str) -> _Token:
        token = self.take(text)
        if token is None:
            raise CelError(f"{text!r} is expected here", self.here.start)
        return token

    def choice(self) -> Expr:
        """Parse `condition ? one : other`, or what binds tighter."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise CelError(f"nested more than {MAX_DEPTH} levels deep", self.here.start)
        condition = self.binary(1)
        if self.take("?"):
            one = self.binary(1)
            self.must(":")
            other = self.choice()
            condition = Expr("choice", "?", (condition, one, other), condition.start, other.end)
        self.depth -= 1
        return condition

    def binary(self, least: int) -> Expr:
        left = self.unary()
        while (level := _BINARY.get(self.here.text, 0)) >= least and self.here.kind in ("sign", "name"):
            operator = self.here.text
            self.at += 1
            right = self.binary(level + 1)
            left = Expr("binary", operator, (left, right), left.start, right.end)
        return left

    def unary(self) -> Expr:
        signs = []
        while (sign := self.take("!", "-")) is not None:
            signs.append(sign)
        found = self.member()
        for sign in reversed(signs):
            found = Expr("unary", sign.text, (found,), sign.start, found.end)
        return found

    def member(self) -> Expr:
        found = self.primary()
        while (sign := self.take(".", "[")) is not None:
            if sign.text == "[":
                key = self.choice()
                found = Expr("index", None, (found, key), found.start, self.must("]").end)
                continue
            name = self.here
            if name.kind != "name":
                raise CelError("a name is expected after '.'", name.start)
            self.at += 1
            if self.take("("):
                arguments, end = self.listed(")")
                found = Expr("method", name.text, (found, *arguments), found.start, end)
            else:
                found = Expr("select", name.text, (found,), found.start, name.end)
        return found

    def primary(self) -> Expr:
        token = self.here
        self.at += 1
        if token.kind == "number":
            return Expr("literal", _number(token), (), token.start, token.end)
        if token.kind == "text":
            return Expr("literal", _unquoted(token), (), token.start, token.end)
        if token.kind == "name":
            return self.named(token)
        if token.text == "(":
            inner = self.choice()
            self.must(")")
            return inner
        if token.text in ("[", "{"):
            parts, end = self.listed("]" if token.text == "[" else "}")
            return Expr("list" if token.text == "[" else "map", None, tuple(parts), token.start, end)
        found = "the expression ends too early" if token.kind == "end" else f"{token.text!r} is not expected here"
        raise CelError(found, token.start)

    def named(self, token: _Token) -> Expr:
        words = {"true": True, "false": False, "null": None}
        if token.text in words:
            return Expr("literal", words[token.text], (), token.start, token.end)
        if self.take("("):
            arguments, end = self.listed(")")
            return Expr("call", token.text, tuple(arguments), token.start, end)
        return Expr("name", token.text, (), token.start, token.end)

    def listed(self, closing: str) -> tuple[list[Expr], int]:
        """Parse what stands before `closing`, with commas (in a map also colons) between; return it and its end."""
        parts: list[Expr] = []
        while (end := self.take(closing)) is None:
            parts.append(self.choice())
            if closing == "}" and self.take(":"):
                continue
            if not self.take(",") and self.here.text != closing:
                raise CelError(f"{closing!r} or ',' is expected here", self.here.start)
        return parts, end.end


def _number(token: _Token) -> int | float:
    text = token.text.rstrip("uU")
    if len(text) > MAX_DIGITS:
        raise CelError(f"a number of {len(text)} characters", token.start)
    if text[:2] in ("0x", "0X"):
        return int(text, 16)
    return float(text) if any(char in text for char in ".eE") else int(text)


def _unquoted(token: _Token) -> str:
    prefix = token.text[: len(token.text) - len(token.text.lstrip("rRbB"))]
    body = token.text[len(prefix):]
    quotes = 3 if body[:3] in ('"""', "'''") else 1
    inner = body[quotes:-quotes]
    return inner if "r" in prefix.lower() else _ESCAPE.sub(_escaped, inner)


def _escaped(match: re.Match[str]) -> str:
    code = match[1] or match[2] or match[3]
    if code:
        number = int(code, 16)
        return chr(number) if number <= 0x10FFFF else match[0]
    return chr(int(match[4], 8)) if match[4] else _ESCAPES.get(match[5], match[5])
