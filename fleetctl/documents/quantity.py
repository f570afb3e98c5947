"""Parses and formats quantities.

Bytes are Kubernetes quantities (`16Gi`, `500M`, `1073741824`). GPU and CPU amounts become integers of 1/10000, Ray's
own fixed point, so that sums are exact. Durations (`15m`, `1h30m`, `500ms`) become seconds.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Annotated, Literal, TypeVar

from pydantic import BeforeValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from fleetctl.documents.base import refusal

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

SHARE = 10_000
"""One whole GPU or CPU in integers of 1/10000."""

MICRO = 1_000_000
"""A price of 1 in integers of 1/10^6."""

MAX_BYTES = 1 << 50
"""Sums over 8,000 nodes are still integers of 64 bits."""
MAX_SHARE = 1_000_000 * SHARE
MAX_SECONDS = 30 * 24 * 3600
MAX_PRICE = 1_000_000_000

BINARY_UNITS = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))
_SUFFIXES = {
    "": 1,
    **{f"{unit}i": 1024 ** (power + 1) for power, unit in enumerate(("K", "M", "G", "T", "P", "E"))},
    **{unit: 1000 ** (power + 1) for power, unit in enumerate(("k", "M", "G", "T", "P", "E"))},
}
_BYTES = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:[eE][0-9]{1,2})?)((?:[KMGTPE]i)|[kMGTPE])?")
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600), "d": Decimal(86400)}

LARGEST_CARD = 432 << 30
"""The memory of the largest cards there are: AMD's MI455X."""
AUTO: Literal["auto"] = "auto"
"""In place of the bytes of a card: an estimate."""
BYTES_ALLOWED = "a byte quantity such as 16Gi, 500M or 1073741824"
CARD_ALLOWED = f"{BYTES_ALLOWED}, or auto"
SHARE_ALLOWED = "a number such as 1, 0.5 or 2"
CPU_ALLOWED = "a number such as 2, 0.5 or 500m"
PRICE_ALLOWED = "a number such as 12.5 or 0.08"
DURATION_ALLOWED = "a duration such as 30s, 15m or 1h30m"


def _bad(kind: str, value: object, allowed: str) -> PydanticCustomError:
    return refusal(f"bad_{kind}", "{found} is not {allowed}", value, allowed)


def _absurd(value: object, allowed: str) -> PydanticCustomError:
    return refusal("absurd_quantity", "{found} is out of range; expected {allowed}", value, allowed)


def parse_bytes(value: object, allowed: str = BYTES_ALLOWED) -> int:
    """Return a Kubernetes quantity in bytes; fractions round up, as in Kubernetes."""
    text = str(value).strip()
    match = _BYTES.fullmatch(text) if len(text) <= 40 and isinstance(value, (int, str)) else None
    if match is None:  # booleans, too: as text they are no number
        raise _bad("bytes", value, allowed)
    exact = Decimal(match[1]) * _SUFFIXES[match[2] or ""]
    if exact > MAX_BYTES:
        raise _absurd(value, "at most 1Pi")
    return int(exact.to_integral_value(rounding="ROUND_CEILING"))


def _parse_share(value: object, allowed: str, kind: str) -> int:
    text = str(value).strip()
    milli = kind == "cpus" and isinstance(value, str) and text.endswith("m")
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if len(text) > 40 or not (is_number or (isinstance(value, str) and kind == "cpus")):
        raise _bad(kind, value, allowed)
    try:
        share = Decimal(text.removesuffix("m") if milli else text) / (1000 if milli else 1) * SHARE
    except InvalidOperation:
        raise _bad(kind, value, allowed) from None
    if not share.is_finite():
        raise _bad(kind, value, allowed)
    if share < 0 or share > MAX_SHARE:
        raise _absurd(value, "between 0 and 1000000")
    if share != share.to_integral_value():
        raise refusal("share_too_fine", "{found} is finer than 0.0001, the finest share Ray can grant", value,
                      "a multiple of 0.0001")
    return int(share)


def parse_gpus(value: object) -> int:
    """Return GPUs in 1/10000; an amount above one card must be whole."""
    share = _parse_share(value, SHARE_ALLOWED, "gpus")
    if share > SHARE and share % SHARE:
        raise refusal("gpus_not_whole", "{found} GPUs: an amount above 1 must be whole cards", value,
                      "a share below 1, or a whole number")
    return share


def parse_cpus(value: object) -> int:
    """Return CPUs in 1/10000, from a number or from Kubernetes' milli form (`500m`)."""
    return _parse_share(value, CPU_ALLOWED, "cpus")


def parse_price(value: object) -> int:
    """Return a price in 1/10^6 of its unit, whichever that is."""
    text = str(value).strip()
    if isinstance(value, bool) or not isinstance(value, (int, float)) or len(text) > 40:
        raise _bad("price", value, PRICE_ALLOWED)
    exact = Decimal(text)  # of a fraction's shortest form: the digits of the file
    if not exact.is_finite():
        raise _bad("price", value, PRICE_ALLOWED)
    if not 0 <= exact <= MAX_PRICE:
        raise _absurd(value, f"between 0 and {MAX_PRICE}")
    micro = exact * MICRO
    if micro != micro.to_integral_value():
        raise refusal("price_too_fine", "{found} has more than six decimal places", value, "a multiple of 0.000001")
    return int(micro)


def parse_duration(value: object) -> int | float:
    """Return seconds; an int if the duration is whole."""
    if not isinstance(value, str) or len(value) > 40:
        raise _bad("duration", value, DURATION_ALLOWED)
    parts = _DURATION_PART.findall(value)
    if not parts or "".join(number + unit for number, unit in parts) != value:
        raise _bad("duration", value, DURATION_ALLOWED)
    seconds = sum((Decimal(number) * _SECONDS[unit] for number, unit in parts), Decimal(0))
    if seconds > MAX_SECONDS:
        raise _absurd(value, "at most 30d")
    return int(seconds) if seconds == seconds.to_integral_value() else float(seconds)


_COUNTS = {"": 1, "K": 10 ** 3, "M": 10 ** 6, "B": 10 ** 9, "T": 10 ** 12}
_COUNT = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)([KMBT]?)")
COUNT_ALLOWED = "a number of parameters such as 8B, 0.6B or 405B"


def parse_parameters(value: object) -> int:
    """Return a number of parameters as models' names have it: `8B` is 8 * 10^9."""
    match = _COUNT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise _bad("parameters", value, COUNT_ALLOWED)
    exact = Decimal(match[1]) * _COUNTS[match[2]]
    if not 0 < exact <= 10 ** 15:
        raise _absurd(value, "between 1 and 1000T")
    return int(exact)


def format_bytes(count: int) -> str:
    """Format bytes in the largest fitting unit: `16Gi`, to two decimals if it is not exact."""
    for unit, size in BINARY_UNITS:
        if abs(count) >= size:
            return f"{count // size}{unit}" if count % size == 0 else f"{count / size:.2f}{unit}"
    return str(count)


def format_share(share: int) -> str:
    """Format an amount in 1/10000 as people write it: 10000 is 1, 2500 is 0.25."""
    return str(share // SHARE) if share % SHARE == 0 else f"{share / SHARE:.4f}".rstrip("0")


def format_price(micro: int) -> str:
    """Format a price in 1/10^6 with what people need of it: two decimals, or four significant digits below 1."""
    exact = Decimal(abs(micro)) / MICRO
    places = 2 if exact >= 1 or not exact else 3 - exact.adjusted()
    text = f"{round(exact, places):f}"
    return f"{'-' if micro < 0 else ''}{text.rstrip('0').rstrip('.') if '.' in text else text}"


def share_number(share: int) -> int | float:
    """Return an amount in 1/10000 as a number: 10000 is 1, 2500 is 0.25."""
    return share / SHARE if share % SHARE else share // SHARE


def format_seconds(seconds: float) -> str:
    """Format a duration in whole minutes, else in seconds: `15m`, `90s`."""
    return f"{seconds / 60:g}m" if seconds >= 60 and seconds % 60 == 0 else f"{seconds:g}s"


def number_in(text: str | None) -> int | None:
    """Return the whole number in a text; None if it is not one, or has more than nine digits."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else None


def version_numbers(version: str) -> tuple[int, ...]:
    """Return the numbers that a version begins with, to compare it: (2, 60, 0) for `2.60.0rc1`; () if there is none."""
    numbers = re.match(r"[0-9]{1,9}(?:\.[0-9]{1,9})*", version)
    return tuple(map(int, numbers[0].split("."))) if numbers else ()


def amount_of(share: int, unit: str) -> str:
    """Format an amount in 1/10000 with its unit: `8 GPUs`, `0.25 GPU`."""
    return f"{format_share(share)} {unit}{'s' if share > SHARE else ''}"


def count_of(number: int, noun: str) -> str:
    """Return `1 node`, `3 nodes`."""
    return f"{number} {plural(number, noun)}"


def some(names: Sequence[str], limit: int = 5) -> str:
    """Return the first `limit` names and the number of the others; a single other one is named, too."""
    if len(names) <= limit + 1:
        return ", ".join(names)
    return f"{', '.join(names[:limit])} and {len(names) - limit} more"


def in_a_row(texts: Sequence[str]) -> str:
    """Return `a`, `a and b`, `a, b and c`."""
    return " and ".join(part for part in (", ".join(texts[:-1]), *texts[-1:]) if part)


def first_few(texts: Sequence[str], limit: int) -> list[str]:
    """Return the first `limit` texts, followed by an entry such as `and 3 more` if there are more."""
    return [*texts[:limit], *([f"and {len(texts) - limit} more"] if len(texts) > limit else [])]


def grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Return the values of each key; keys and values keep their order."""
    found: dict[Key, list[Value]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def plural(number: float, noun: str) -> str:
    """Return the noun for a number: `node` for 1, else `nodes`."""
    return noun if number == 1 else f"{noun}s"


_BYTES_SCHEMA = [{"type": "integer", "minimum": 0},
                 {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?([eE][0-9]{1,2})?([KMGTPE]i|[kMGTPE])?$"}]
Bytes = Annotated[
    int, BeforeValidator(parse_bytes),
    WithJsonSchema({"anyOf": _BYTES_SCHEMA, "description": BYTES_ALLOWED}, mode="validation"),
]
CardBytes = Annotated[
    int | Literal["auto"], BeforeValidator(lambda value: AUTO if value == AUTO else parse_bytes(value, CARD_ALLOWED)),
    WithJsonSchema({"anyOf": [*_BYTES_SCHEMA, {"const": AUTO}], "description": CARD_ALLOWED}, mode="validation"),
]
Gpus = Annotated[
    int, BeforeValidator(parse_gpus),
    WithJsonSchema({"type": "number", "minimum": 0, "description": "a share of one card below 1, or whole cards"},
                   mode="validation"),
]
GpuSum = Annotated[
    int, BeforeValidator(lambda value: _parse_share(value, SHARE_ALLOWED, "gpus")),
    WithJsonSchema({"type": "number", "minimum": 0, "description": "GPUs of several members together, shares included"},
                   mode="validation"),
]
Cpus = Annotated[
    int, BeforeValidator(parse_cpus),
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0},
                              {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?m?$"}],
                    "description": CPU_ALLOWED}, mode="validation"),
]
Price = Annotated[
    int, BeforeValidator(parse_price),
    WithJsonSchema({"type": "number", "minimum": 0, "maximum": MAX_PRICE, "description": PRICE_ALLOWED},
                   mode="validation"),
]
Seconds = Annotated[
    int | float, BeforeValidator(parse_duration),
    WithJsonSchema({"type": "string", "pattern": r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$",
                    "description": DURATION_ALLOWED}, mode="validation"),
]
Parameters = Annotated[
    int, BeforeValidator(parse_parameters),
    WithJsonSchema({"type": "string", "pattern": r"^[0-9]{1,15}(\.[0-9]{1,9})?[KMBT]?$",
                    "description": COUNT_ALLOWED}, mode="validation"),
]
