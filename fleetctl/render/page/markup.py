"""HTML as values: text is escaped unless it is `Markup`, so that no text from a fleet or a cluster becomes an element.

Invisible characters (control characters, right-to-left overrides) are escaped first, as in every format.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

from fleetctl.render.visible import visible

SHORT_NAME = 20
"""The longest name, in characters, that is kept on one line: it fits on a phone."""

_NAME = re.compile(r"\w+(?:[-/.[\]]+\w+)+")
_JOINT = re.compile(r"[/.](?=\w)")
_VOID = frozenset({"br", "input", "meta"})


class Markup(str):
    """HTML that was built here and is safe to put into a page."""

    __slots__ = ()


Content = str | Iterable[str] | None
Attribute = str | int | bool | None


def text(value: str) -> Markup:
    """Return `value` as HTML text, also safe between double quotes; `Markup` stays as it is."""
    return value if isinstance(value, Markup) else Markup(escape(visible(value)))


def el(name: str, /, *content: Content, **attributes: Attribute) -> Markup:
    """Return an element. Content is text, markup, an iterable of these, or None for nothing.

    `class_` becomes `class`, `data_total` `data-total`. True gives a bare name; None and False omit the attribute.
    """
    opening = f"<{name}{''.join(_attribute(key, value) for key, value in attributes.items())}>"
    return Markup(opening if name in _VOID else f"{opening}{many(*content)}</{name}>")


def many(*content: Content) -> Markup:
    """Return content without an enclosing element."""
    return Markup("".join(_inside(part) for part in content if part is not None))


def unbroken(value: str) -> Markup:
    """Return text in which short names do not wrap, and long ones wrap only after a `/` or a dot."""
    return Markup(_NAME.sub(_unbroken_name, text(value)))


def _unbroken_name(name: re.Match[str]) -> str:
    if len(name[0]) <= SHORT_NAME:
        return el("span", Markup(name[0]), class_="whole") if "-" in name[0] else name[0]
    return _JOINT.sub(r"\g<0><wbr>", name[0])


def _inside(part: str | Iterable[str]) -> str:
    return text(part) if isinstance(part, str) else "".join(text(one) for one in part)


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{text(str(value))}"'
