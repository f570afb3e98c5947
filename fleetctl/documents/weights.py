"""Weights: of a member in a fleet file, and in inventories and plans: who serves them, and the chosen sources."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from fleetctl.documents.base import Authored, Moment, OneOf, PathFromRoot, Stored, Text, full_match, refusal

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


Artifact = Annotated[str, Field(pattern="^[0-9a-f]{64}$", description="the hash of the index")]
ViewId = Annotated[str, Field(pattern="^[0-9a-f]{16}$")]


def is_absent(value: object) -> bool:
    """Return whether an optional key is left out of a document: most members have no weights."""
    return value is None


def is_zero(value: object) -> bool:
    """Return whether a number or list is left out of a document because it is 0 or empty, as reloads in most plans."""
    return not value


class GotWeights(Stored):
    """How a member, or all members of a replica together, got weights at their start."""

    source: str = Field(description="disk, peer or origin; if several, the one that gave most")
    from_: str = Field("", alias="from", description="the replica, folder or URL")
    bytes: int = Field(0, description="bytes from the network or the origin")
    seconds: float = 0
    reused: int = Field(0, description="bytes that the node already had")
    left: list[str] = Field(default_factory=list, description="the sources that were given up, and why")


class ServedWeights(Stored):
    """The weights that one member has, and serves to nodes that start later."""

    artifact: Artifact
    view: ViewId | None = Field(None, description="the part that its engine has; null = all files")
    whole: bool = Field(False, description="it has all files, and can make any part of them")
    port: Annotated[int, Field(ge=1, le=65535, strict=True)] | None = Field(
        None, description="the port at which it serves them; null = it does not")
    ports: Ports | None = Field(None, exclude_if=is_absent, description="its node's weightsPorts; absent = any port")
    unserved: str | None = Field(None, exclude_if=is_absent, description="why it does not serve them")
    bytes: int | None = Field(None, ge=0, description="the size of the part that its engine has")
    fetched: GotWeights | None = Field(None, description="how it got them")
    verified: Moment | None = Field(
        None, exclude_if=is_absent,
        description="since when all its files are verified; null = they were not yet, when this was written")


class GotCaches(Stored):
    """How a member got the compile caches of its engine at its start."""

    key: str = Field(description="hash of what must be equal for a cache to be used again; empty = it has no folder")
    source: str = Field("", description="disk, peer, or empty: it compiled")
    from_: str = Field("", alias="from", description="the replica")
    bytes: int = 0
    seconds: float = 0
    trouble: str | None = Field(None, exclude_if=is_absent, description="why none were used, or are exchanged")


class WeightSource(Stored):
    """A ready replica that serves the weights a new member needs."""

    replica: str = Field(description="<model>/<replicaId>")
    node_id: str
    node: str
    address: str = Field(description="host and port at which it serves its weights")
    view: ViewId | None = Field(None, description="the part that its engine has; null = all files")
    whole: bool = Field(False, description="it has all files, and can make the requested part")
    bytes: int | None = Field(None, description="bytes to fetch; null = unknown until the part is made")
    wave: int | None = Field(
        None, ge=2, exclude_if=is_absent,
        description="absent = the first; in a later wave it, or a member that it has served, has a free place")


class PlannedWeights(Stored):
    """The weights of one planned member. Without sources it fetches them from `from`."""

    artifact: Artifact
    from_: list[dict[str, str]] = Field(alias="from", description="the origins, as in the file")
    sources: list[WeightSource] = Field(
        default_factory=list, description="best first; each is planned for at most four fetches in the first wave")
    view: dict[str, Any] | None = Field(None, description="as in the file; null = all files")
    ports: Ports | None = Field(None, exclude_if=is_absent, description="the node's weightsPorts; absent = any port")
