"""The base of all documents: camelCase outside, snake_case inside.

People write `Authored` documents, in which an unknown key is a mistake. Programs, perhaps newer ones, write `Stored`
documents, in which an unknown key is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    Tag,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, PydanticCustomError

FORMAT_VERSION = "1.0"

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})")


def _moment(text: str) -> str:
    """Refuse a time without a zone: it cannot be compared with one that has a zone."""
    try:
        if _MOMENT.fullmatch(text):
            as_datetime(text).astimezone(timezone.utc)
            return text
    except (ValueError, OverflowError):
        pass  # a 13th month matches the pattern, too, and so does a time after the year 9999 in UTC
    raise PydanticCustomError("moment", "expected RFC 3339 with a zone, such as 2026-03-04T12:00:00Z")


Moment = Annotated[str, AfterValidator(_moment), Field(json_schema_extra={"format": "date-time"})]
"""A point in time, RFC 3339 with a zone, kept as written."""


def as_datetime(moment: str) -> datetime:
    """Return a `Moment` as a value that can be compared, to the second; raises ValueError for anything else."""
    # Python 3.10 reads neither Z nor arbitrary fractions of a second
    return datetime.fromisoformat(re.sub(r"\.[0-9]+", "", moment).replace("Z", "+00:00"))


def moment_at(since_epoch_s: float) -> str:
    """Return a point in time as a `Moment` in UTC, to the second."""
    at = datetime.fromtimestamp(0, tz=timezone.utc) + timedelta(seconds=int(since_epoch_s))
    return at.isoformat().replace("+00:00", "Z")


def clock_text(moment: str, observed_at: str) -> str:
    """Return the time of day in UTC, with the date if it is not the day of `observed_at`."""
    at = as_datetime(moment)
    return f"{at:%H:%M} UTC" if at.date() == as_datetime(observed_at).date() else f"{at:%Y-%m-%d %H:%M} UTC"


def age_text(moment: str, observed_at: str) -> str:
    """Return the time from `moment` to `observed_at` in its two largest units: `40s`, `12m05s`, `5h12m`, `3d04h`."""
    return span_text(max(0, int((as_datetime(observed_at) - as_datetime(moment)).total_seconds())))


def span_text(seconds: int) -> str:
    """Return a time in its two largest units, as `age_text` does."""
    for size, unit, below, part in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "m"), (60, "m", 1, "s")):
        if seconds >= size:
            return f"{seconds // size}{unit}{seconds % size // below:02}{part}"
    return f"{seconds}s"


def refusal(kind: str, message: str, found: object, allowed: str) -> PydanticCustomError:
    """Return the error for a value; `message` has {found} for the value and may have {allowed}."""
    return PydanticCustomError(kind, message, {"found": repr(found), "allowed": allowed})


HIDDEN = (r"\u0000-\u001f\u007f-\u00a0\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u1680\u180e\u2000-\u200f"
          r"\u2028-\u202f\u205f-\u206f\u3000\ue000-\uf8ff\ufeff\ufff9-\uffff")
"""For patterns in schemas: most characters that `str.isprintable` refuses, such as line ends and marks that reverse the
direction of text. Beyond U+FFFF, editors read patterns differently."""


def is_model_key(text: str) -> bool:
    """Return whether a model can have this key: 1 to 512 visible characters, and no blank at either end."""
    return 0 < len(text) <= 512 and text.isprintable() and text == text.strip()


MOST_OF_SERVED_NAME = 256


def is_served_name(text: str) -> bool:
    """Return whether clients can request a model by this name: visible text without commas and blanks at its ends."""
    return 0 < len(text) <= MOST_OF_SERVED_NAME and text.isprintable() and "," not in text and text == text.strip()


def passes(test: Callable[[str], object], kind: str, message: str, allowed: str) -> AfterValidator:
    """Return a validator that a text passes `test`; its error is that of `refusal`."""
    def check(text: str) -> str:
        if not test(text):
            raise refusal(kind, message, text, allowed)
        return text

    return AfterValidator(check)


def full_match(pattern: str | re.Pattern[str], kind: str, message: str, allowed: str) -> AfterValidator:
    """Return a validator that the whole text matches `pattern`; its error is that of `refusal`."""
    return passes(re.compile(pattern).fullmatch, kind, message, allowed)


Text = Annotated[str, full_match(r"[^\0]*", "nul_in_text",
                                 "{found} has a NUL character, which no process can receive", "text without NUL")]

PathFromRoot = Annotated[Text, Field(pattern="^/", json_schema_extra={"pattern": "^/"})]
DNS_LABEL = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
DnsLabel = Annotated[str, Field(pattern=DNS_LABEL, description="a DNS label")]

TEXT, MAPPING, LIST = Tag("<text>"), Tag("<mapping>"), Tag("<list>")
"""The two forms that some values may have. A tag is in the location of an error, but is not a key of the file."""

TEXT_OR_MAPPING = Discriminator(lambda value: (MAPPING if isinstance(value, (dict, BaseModel)) else TEXT).tag)
MAPPING_OR_LIST = Discriminator(lambda value: (LIST if isinstance(value, list) else MAPPING).tag)
TEXT_OR_LIST = Discriminator(lambda value: (LIST if isinstance(value, list) else TEXT).tag)


class Authored(BaseModel):
    """Written by a person: unknown keys are errors and types are not coerced (`true` is not 1, `"3"` is not 3)."""

    model_config = ConfigDict(
        alias_generator=to_camel, validate_by_name=False, extra="forbid", strict=True, frozen=True, allow_inf_nan=False,
        defer_build=True,
    )

    def as_json(self) -> dict[str, Any]:
        """Return it as it is in a plan: camelCase, durations in seconds, unset keys left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def _one_kind(schema: dict[str, Any], model: type[OneOf]) -> None:
    is_text = {kind: any(part.get("type") == "string" for part in schema["properties"][kind]["anyOf"])
               for kind in model.KINDS}
    schema["oneOf"] = [{"required": [kind], "properties": {kind: {"type": "string" if is_text[kind] else "object"}}}
                       for kind in model.KINDS]


class OneOf(Authored):
    """A mapping with exactly one of KINDS; with none or several, ERROR is the type of pydantic's error."""

    KINDS: ClassVar[tuple[str, ...]]
    ERROR: ClassVar[str]
    model_config = ConfigDict(json_schema_extra=_one_kind)

    @model_validator(mode="after")
    def _exactly_one_kind(self) -> OneOf:
        kinds = [kind for kind in self.KINDS if getattr(self, kind) is not None]
        if len(kinds) != 1:
            raise PydanticCustomError(self.ERROR, "exactly one of {allowed}; found {found}", {
                "found": " and ".join(kinds) or "none",
                "allowed": f"{', '.join(self.KINDS[:-1])} and {self.KINDS[-1]}"})
        return self


MOST = {"int": (1 << 64) - 1, "float": 1e11}
"""The largest numbers in a stored document, of either sign. Fractions are seconds: so many after today are a date."""


def _bound_numbers(schema: Any) -> None:  # noqa: ANN401  any part of a core schema
    """Give each number of a model that has no limit one of MOST."""
    if isinstance(schema, dict):
        kind = schema.get("type")  # a field may have this name, too
        if isinstance(kind, str) and kind in MOST:
            if not schema.keys() & {"ge", "gt"}:
                schema["ge"] = -MOST[kind]
            if not schema.keys() & {"le", "lt"}:
                schema["le"] = MOST[kind]
        else:
            for part in schema.values():
                _bound_numbers(part)
    elif isinstance(schema, (list, tuple)):
        for part in schema:
            _bound_numbers(part)


class Stored(BaseModel):
    """Written by a program: unknown keys are ignored, so that a newer minor version stays readable.

    A program may also write any number, so each has a limit: of its field, else of MOST.
    """

    model_config = ConfigDict(
        alias_generator=to_camel, validate_by_name=True, extra="ignore", frozen=True, allow_inf_nan=False,
        defer_build=True,
    )

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:  # noqa: ANN401
        schema = handler(source)
        _bound_numbers(schema)
        return schema


class Versioned(Stored):
    """A document of its own: its first key is the version of its format."""

    format_version: str = FORMAT_VERSION
