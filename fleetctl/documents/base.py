"""What all documents share: camelCase outside, snake_case inside, and how strict each kind is.

`Authored` is what a person writes: an unknown key is a mistake. `Stored` is what a machine wrote, perhaps a newer one:
an unknown key is ignored.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

FORMAT_VERSION = "1.0"


class Authored(BaseModel):
    """Written by a person: unknown keys are errors and types are not coerced (`true` is not 1, `"3"` is not 3)."""

    model_config = ConfigDict(
        alias_generator=to_camel, validate_by_name=False, extra="forbid", strict=True, frozen=True, allow_inf_nan=False
    )


class Stored(BaseModel):
    """Written by a machine: unknown keys are ignored, so that a newer minor version stays readable."""

    model_config = ConfigDict(
        alias_generator=to_camel, validate_by_name=True, extra="ignore", frozen=True, allow_inf_nan=False
    )
