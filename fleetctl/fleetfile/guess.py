"""Guesses the value that was most likely meant: `16G` for `16GB`, `30s` for `30`, `in(a, b)` for `[a, b]`."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable

from fleetctl.documents.base import is_model_key, is_served_name
from fleetctl.documents.names import served_name_in
from fleetctl.documents.plain_yaml import is_text_to_all
from fleetctl.documents.quantity import SHARE, parse_bytes, parse_duration, parse_parameters
from fleetctl.documents.selector import parse_requirement
from fleetctl.documents.weights import parse_ports

MOST_WORDS = 200
BECAUSE_OF_THE_COMMA = "in quotes because of the comma"
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_./$()=-]+")
_AMOUNT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")
_RATIO = re.compile(r"\s*([0-9]{1,4})\s*/\s*([1-9][0-9]{0,3})\s*")
_UNIT_WORDS = {
    "": "s", "sec": "s", "secs": "s", "second": "s", "seconds": "s",
    "min": "m", "mins": "m", "minute": "m", "minutes": "m", "hr": "h", "hrs": "h", "hour": "h", "hours": "h",
    "day": "d", "days": "d", "millis": "ms", "milliseconds": "ms",
}


def bytes_meant(text: str) -> str | None:
    """Return the byte quantity meant by `text`: 16G for `16GB`, 16Gi for `16 gib`."""
    match = _AMOUNT.fullmatch(text)
    if match is None or not match[2]:
        return None
    unit = match[2].lower().removesuffix("b").removesuffix("ytes")
    scale = unit[:1]
    if scale not in tuple("kmgtpe") or unit[1:] not in ("", "i"):
        return None
    binary = unit.endswith("i")
    letter = "k" if scale == "k" and not binary else scale.upper()
    return _if_valid(f"{match[1]}{letter}{'i' if binary else ''}", parse_bytes)


def parameters_meant(text: str) -> str | None:
    """Return the number of parameters meant by `text`: 8B for `8b`, `8 billion` and `8`; a large number in quotes."""
    match = _AMOUNT.fullmatch(text)
    if match and not match[2]:
        return _if_valid(f"{match[1]}B", parse_parameters) if len(match[1]) < 5 else f'"{match[1]}"'
    return match and _if_valid(f"{match[1]}{match[2][:1].upper()}", parse_parameters)


def duration_meant(text: str) -> str | None:
    """Return the duration meant by `text`; a bare number is seconds."""
    match = _AMOUNT.fullmatch(text)
    if match is None:
        return None
    unit = match[2].lower()
    return _if_valid(f"{match[1]}{_UNIT_WORDS.get(unit, unit)}", parse_duration)


def number_meant(text: str) -> str | None:
    """Return the number meant by quoted text; `1/3` is 0.3333, rounded down so that three of them fit on a card."""
    ratio = _RATIO.fullmatch(text)
    if ratio:
        return f"{int(ratio[1]) * SHARE // int(ratio[2]) / SHARE:g}"
    return text.strip() if re.fullmatch(r"\s*[0-9]+(\.[0-9]+)?\s*", text) else None


def price_meant(text: str) -> str | None:
    """Return the price meant by text with a currency or a unit: `$12.50/h` is 12.50."""
    price = re.fullmatch(r"[^0-9.,-]*([0-9]+(?:\.[0-9]{1,6})?)(?:[^0-9.,-][^0-9.,]*)?", text)
    return price[1] if price else None


def key_meant(text: str) -> str | None:
    """Return the model key meant by `text`: on one line, without hidden characters and blanks at its ends."""
    meant = "".join(char for char in re.sub(r"\s+", " ", text) if char.isprintable()).strip()
    return meant if is_model_key(meant) and meant != text else None


def served_name_meant(text: str) -> str | None:
    """Return the name in requests meant by `text`: the checkpoint of a key of NDIF, otherwise `-` for commas."""
    found = served_name_in(text)
    meant = found or "-".join(re.split(r"\s*,\s*", (key_meant(text) or text).strip(" ,")))
    return meant if is_served_name(meant) and meant != text else None


def selector_meant(text: str) -> str | None:
    """Return the selector meant by `text`: a truncated `in(a`, a list with `|` or commas, `==` or `!=`."""
    if text.count("(") > text.count(")"):
        head = text.strip().rstrip(", ")
        if not _if_valid(f"{head})", parse_requirement):
            return None
        return f'"{head})"' if "," in head else f'{head}), or "{head}, b)" {BECAUSE_OF_THE_COMMA}'
    bare = text.strip().lstrip("=! ").removeprefix("not ").strip("[]() ")
    values = [value.strip() for value in re.split(r"[|,]", bare.removeprefix("in").strip("( ")) if value.strip()]
    negated = "!" if text.strip().startswith(("!", "not ")) else ""
    meant = f"{negated}in({', '.join(values)})" if len(values) > 1 else f"{negated}{''.join(values)}"
    if not _if_valid(meant, parse_requirement):
        return None
    return f'"{meant}"' if not meant.isalnum() else meant


def dns_label_meant(text: str) -> str | None:
    """Return the DNS label meant by `text`: lower case, hyphens, at most 63 characters."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:63].strip("-") or None


def words_meant(text: str) -> str | None:
    """Return a command line as a YAML list of its words."""
    try:
        words = shlex.split(text) if len(text) <= MOST_WORDS else []
    except ValueError:
        return None
    shown = [word if _PLAIN_WORD.fullmatch(word) and is_text_to_all(word) else json.dumps(word) for word in words]
    return f"[{', '.join(shown)}]" if shown else None


def bool_meant(text: str) -> str | None:
    """Return the boolean that YAML 1.1 reads in `text`, such as true for `yes`."""
    return {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false",
            "true": "true", "false": "false"}.get(text.lower())


def ports_meant(text: str) -> str | None:
    """Return the range that `text` means: `20000-20000` for a single port, `20000-20063` for `20000:20063`."""
    ends = re.findall("[0-9]+", text)
    return _if_valid(f"{ends[0]}-{ends[-1]}", parse_ports) if 1 <= len(ends) <= 2 else None


def _if_valid(text: str, parse: Callable[[str], object]) -> str | None:
    try:
        parse(text)
    except ValueError:
        return None
    return text
