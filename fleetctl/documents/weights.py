"""The weights of one member in a fleet file: their origins, the hash of their index, and the part that is needed."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from fleetctl.documents.base import Authored, OneOf, PathFromRoot, Text, full_match, refusal

GROUP_SIZE = "$(FLEETCTL_GROUP_SIZE)"
_INDEX = "^[0-9a-f]{64}$"
_URL = re.compile(r"https?://((:|\$\([^()]*\))+@)?([^\s/?#@:\[\]]+|\[[0-9a-fA-F:.]+\])(:[0-9]+)?(/[^\s?#]*)?"
                  r"(\?(&|([A-Za-z0-9_.-]+=)?\$\([^()]*\))+)?")
_REFERENCE = re.compile(r"\$\([^()]*\)")


def regex_error(text: str) -> str | None:
    """Return why a text is not a regular expression; a $(NAME) in it counts as a digit.

    Not a validator: compiling takes up to a millisecond per character, and a fleet has 16 MiB of them.
    """
    try:
        re.compile(_REFERENCE.sub("0", text))
    except (re.error, OverflowError, RecursionError) as error:
        return str(error)
    return None


def parse_ports(value: object) -> str:
    """Return the value if it is a range of ports, or none; a number alone is neither."""
    text = str(value)
    first, last = (int(end) for end in text.split("-")) if re.fullmatch("[0-9]{4,5}-[0-9]{4,5}", text) else (0, 0)
    if text != "none" and not 1024 <= first <= last <= 65535:
        raise refusal("bad_ports", "{found} is not {allowed}", value,
                      "FIRST-LAST, two ports from 1024 to 65535, such as 20000-20063, or none")
    return text


def _parse_of(value: object) -> object:
    if value == GROUP_SIZE or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
        return value
    raise refusal("bad_of", "{found} is not {allowed}", value, f"the number of members of the group, or {GROUP_SIZE}")


# a URL may hold a secret, so the message does not show it
_Url = Annotated[Text, full_match(
    _URL, "bad_url", "an http origin is an absolute URL without password, query or fragment",
    "https://host/folder/ or https://host/folder?token=$(NAME), with a variable of the node's environment"),
    Field(json_schema_extra={"pattern": "^https?://"})]
_Name = Annotated[Text, full_match(
    r"(?!/)(?!.*://)\S*", "bad_origin", "{found} is not {allowed}",
    "bucket/prefix for s3 or name@revision for hf, without scheme or spaces")]
_PORTS = r"^(none|[0-9]{4,5}-[0-9]{4,5})$"
Ports = Annotated[Text, BeforeValidator(parse_ports), Field(json_schema_extra={"pattern": _PORTS})]
"""The ports at which weights are served: `first-last`, or `none`."""
Parts = Annotated[Any, BeforeValidator(_parse_of), WithJsonSchema(
    {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "const": GROUP_SIZE}]}, mode="validation")]


class Origin(OneOf):
    """One location of the files; exactly one of path, http, s3 and hf."""

    KINDS = ("path", "http", "s3", "hf")
    ERROR = "weights_kind"

    path: PathFromRoot | None = Field(None, description="a folder on the node")
    http: _Url | None = Field(
        None, description="the URL of a folder; a password only as $(NAME), from the node's environment")
    s3: _Name | None = Field(None, description="bucket/prefix; the node needs s3fs")
    hf: _Name | None = Field(None, description="name@revision; the node needs huggingface_hub")


class ShardRule(Authored):
    """Which tensors to split, and along which dimension; the first matching rule applies."""

    match: Text = Field(description="a regular expression for tensor names")
    dim: Annotated[int, Field(ge=0, le=15)] = Field(0, description="the dimension to split")


class Shard(Authored):
    """Each rank's equal part of the tensors that a rule matches, and all other tensors whole."""

    rules: Annotated[list[ShardRule], Field(min_length=1, max_length=1024)] = Field(description="what to split")
    of: Parts = Field(GROUP_SIZE, description="the number of parts: the members of the group")


class View(OneOf):
    """The part of the files that a member needs; exactly one of files, tensors and shard."""

    KINDS = ("files", "tensors", "shard")
    ERROR = "weights_kind"

    files: Annotated[Text, Field(min_length=1)] | None = Field(
        None, description="the weight files whose names match, and every file that holds no weights")
    tensors: Text | None = Field(None, description="the tensors whose names match, in one file")
    shard: Shard | None = Field(None, description="one rank's part of each tensor, in one file")


class Weights(Authored):
    """The contents of the folder FLEETCTL_MODEL_DIR before the engine starts; docs/weights.md."""

    from_: Annotated[list[Origin], Field(min_length=1, max_length=16)] = Field(
        alias="from", description="origins of the files, tried in this order if no replica has them; "
                                  "not part of the spec hash")
    index: Annotated[Text, full_match(
        _INDEX, "bad_index", "{found} is not {allowed}", "the 64 hex digits that `weights index` prints"),
        Field(json_schema_extra={"pattern": _INDEX})] = Field(
        description="identifies the files: the hash that `fleetctl weights index` prints")
    view: View | None = Field(None, description="the part that this member needs; default: all files")
