"""The user's configuration file: clusters by name. It says where secrets come from, and holds none."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from fleetctl.documents.base import Authored

Text = Annotated[str, Field(min_length=1)]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class SecretSource(Authored):
    """Where a secret comes from: an environment variable, or the first line of a command's output."""

    env: Variable | None = None
    command: Annotated[list[Text], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _one_source(self) -> SecretSource:
        if (self.env is None) == (self.command is None):
            raise PydanticCustomError("secret_source", "expected env: VARIABLE or command: [PROGRAM, ARGUMENT]")
        return self

    def __str__(self) -> str:
        return f"variable {self.env}" if self.env else f"command {' '.join(self.command or ())}"


class Context(Authored):
    """One cluster: its address, and the credentials and headers to send."""

    address: Text
    namespace: Text | None = None
    token: SecretSource | None = None
    headers: dict[str, SecretSource] = Field(default_factory=dict)
    client_cert: Text | None = None
    client_key: Text | None = None


class Contexts(Authored):
    """The whole file; `current` names the context to use if nothing else names a cluster."""

    current: Text | None = None
    contexts: dict[Text, Context] = Field(default_factory=dict)
