"""A model as numbers: what of its weights and of its context a card holds. `fleetctl model describe` writes it.

The file is small, is reviewed beside the fleet file, and is the only thing that plans know about a checkpoint.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from fleetctl.documents.base import Authored, Text

MOST_LAYERS = 4_096
Count = Annotated[int, Field(ge=0, le=1 << 50)]
Attention = Literal["full", "sliding", "chunked"]


class Divided(Authored):
    """Bytes by how tensor parallel engines divide them over ranks."""

    split: Count = Field(0, description="divided evenly over the ranks")
    attention: Count = Field(0, description="of `split`, what belongs to the attention: SGLang divides it over fewer "
                                            "ranks with `--enable-dp-attention`")
    key_value: Count = Field(0, description="projections of keys and values: divided over at most as many ranks as "
                                            "there are KV heads")
    whole: Count = Field(0, description="on every rank: norms, routers, the down projections of latent attention")
    experts: Count = Field(0, description="of all experts that are routed to")

    @property
    def total(self) -> int:
        """The bytes of all parts."""
        return self.split + self.key_value + self.whole + self.experts


class Layers(Authored):
    """Equal layers in a row."""

    count: Annotated[int, Field(ge=1, le=MOST_LAYERS)] = Field(description="how many")
    attention: Attention | None = Field(None, description="what a token of the context may see, if the layer has a KV "
                                                          "cache")
    state: bool = Field(False, description="it keeps a state of fixed size for each sequence")
    bytes: Divided = Field(default_factory=Divided, description="of one such layer, as stored")


class Latent(Authored):
    """Latent attention: the cache holds one compressed vector for each token, on every rank."""

    rank: Annotated[int, Field(ge=1, le=1 << 20)] = Field(description="`kv_lora_rank`")
    rope: Annotated[int, Field(ge=0, le=1 << 20)] = Field(description="`qk_rope_head_dim`")
    index: Annotated[int, Field(ge=0, le=1 << 20)] = Field(
        0, description="of sparse attention, the size of a key in its index")


class State(Authored):
    """What a layer with a state keeps for each sequence, in elements."""

    convolution: Count = Field(description="of the convolution, in the type of the weights")
    recurrent: Count = Field(description="of the recurrence")
    recurrent_bytes: Annotated[int, Field(ge=1, le=8)] | None = Field(
        None, description="bytes of one of the latter, if the checkpoint sets its type")


class Description(Authored):
    """The document."""

    api_version: Literal["fleetctl/v1"]
    kind: Literal["Model"]
    source: Text = Field(description="what it was read from")
    architecture: Text = Field(description="the class in `config.json`, or the architecture of a GGUF file")
    parameters: Count = Field(description="stored elements, without scales of quantized weights where those are known")
    bytes: Count = Field(description="stored bytes of all tensors")
    types: dict[Text, Count] = Field(description="stored bytes by type of the file format")
    quantization: Text | None = Field(None, description="the method, if the weights are quantized")
    element_bytes: Annotated[int, Field(ge=1, le=8)] = Field(2, description="bytes of an element of the KV cache, "
                                                                            "unless flags set its type")
    positions: Count = Field(description="the longest context; 0 = unknown")
    hidden: Count = Field(description="the size of a token between layers")
    intermediate: Count = Field(0, description="the widest vector of a token inside a layer's feed-forward network")
    vocabulary: Count = Field(description="the rows of the embedding")
    heads: Count = Field(0, description="attention heads for queries")
    kv_heads: Count = Field(0, description="attention heads for keys and values")
    key_size: Count = Field(0, description="the size of a key in one head; of latent attention, without its rotary "
                                           "part")
    value_size: Count = Field(0, description="the size of a value in one head")
    window: Count = Field(0, description="how many tokens a sliding or chunked layer sees")
    latent: Latent | None = None
    state: State | None = None
    experts: Count = Field(0, description="experts of a layer that are routed to")
    tied: bool = Field(False, description="the head is the embedding")
    embedding: Count = Field(0, description="bytes of the embedding")
    head: Count = Field(0, description="bytes of the head, if it is stored and used")
    outside: Count = Field(0, description="bytes beside layers, embedding and head: the last norm, position tables")
    vision: Count = Field(0, description="bytes of encoders of images or sound, and of what connects them")
    draft: Count = Field(0, description="bytes of layers that predict further tokens, loaded only on request")
    unused: Count = Field(0, description="stored bytes that no engine loads: a head beside a tied embedding, tables of "
                                         "rotary frequencies, masks")
    layers: Annotated[list[Layers], Field(max_length=MOST_LAYERS)]
    attention_known: bool = Field(True, description="false if the kinds of attention could not be read; the context is "
                                                    "left out of the certain bound then")

    @model_validator(mode="after")
    def _adds_up(self) -> Description:
        if (count := sum(run.count for run in self.layers)) > MOST_LAYERS:
            raise PydanticCustomError("model_layers", "it has {count} layers, and at most {most} are read",
                                      {"count": count, "most": MOST_LAYERS})
        parts = (self.embedding + self.head + self.outside + self.vision + self.draft + self.unused
                 + sum(run.count * run.bytes.total for run in self.layers))
        if parts != self.bytes:
            raise PydanticCustomError("model_bytes", "its parts have {parts} bytes, and `bytes` says {bytes}: describe "
                                                     "the model again", {"parts": parts, "bytes": self.bytes})
        return self

    def as_json(self) -> dict[str, Any]:
        """Return it as it is in its file: camelCase, without what has its default."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)

    @property
    def loaded(self) -> int:
        """The bytes that an engine loads at least."""
        return self.bytes - self.vision - self.draft - self.unused
