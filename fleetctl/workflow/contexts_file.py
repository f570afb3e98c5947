"""The user's configuration file: clusters by name. It says where secrets come from, and holds none.

Read here, and changed value by value in place, comments kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from fleetctl.documents.base import Authored
from fleetctl.errors import DocumentError
from fleetctl.fleetfile.file_tree import read_whole
from fleetctl.fleetfile.sources import SourceBytes
from fleetctl.workflow.output_files import real_path, write_file

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


def config_path(environ: Mapping[str, str], home: Path) -> Path:
    """Return the configuration file, which need not exist."""
    return user_folder(environ, home, "XDG_CONFIG_HOME", ".config") / "config.yaml"


def user_folder(environ: Mapping[str, str], home: Path, variable: str, usual: str) -> Path:
    """Return our folder below an XDG base directory; `usual` is that directory's default, relative to `home`."""
    named = environ.get(variable, "")
    return (Path(named) if named.startswith("/") else home / usual) / "fleetctl"


def read_contexts(path: Path) -> Contexts:
    """Return the contexts in the file, none if there is no file; raises DocumentError for a damaged file."""
    return _checked(_values(_bytes_of(path), path), path)


def change_contexts(path: Path, changes: Mapping[str, object], *below: str) -> Contexts:
    """Write new values into the file, or into the mapping `below` these keys; None removes a key. Comments stay.

    Returns the changed contexts; raises DocumentError and writes nothing if they would not be valid.
    """
    from fleetctl.fleetfile.format import with_values  # only these commands write

    data = _bytes_of(path)
    before = _values(data, path)
    _checked(before, path)
    after = json.loads(json.dumps(before))  # what aliases share is one value in `before`
    part = after
    for key in below:
        part = part.setdefault(key, {})
    part.update(changes)
    for key in [key for key, value in changes.items() if value is None]:
        del part[key]
    wanted = _checked(after, path)
    text = with_values(data.decode("utf-8-sig"), before, after)
    if text is None or _checked(_values(text.encode(), path), path) != wanted:
        raise DocumentError(f"{path} cannot be changed without changing more than was asked for",
                            hint="change it by hand")
    write_file(real_path(path), text, mode=0o600, make_folder=True)
    return wanted


def _bytes_of(path: Path) -> bytes:
    try:
        return read_whole(path)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise DocumentError(f"{path} cannot be read: {error.strerror or error}") from None


def _values(data: bytes, path: Path) -> Any:  # noqa: ANN401  any YAML value
    from fleetctl.fleetfile.compose import compose_bytes  # loads YAML, which a cluster without a file does not need

    composed = compose_bytes(SourceBytes(str(path), data))
    for problem in composed.problems:
        raise DocumentError(f"{path}:{problem.line}:{problem.column}: {problem.message}")
    if len(composed.documents) > 1:
        raise DocumentError(f"{path} holds {len(composed.documents)} documents", hint="one is allowed")
    return composed.documents[0].value if composed.documents else {}


def _checked(raw: object, path: Path) -> Contexts:
    try:
        return Contexts.model_validate(raw)
    except ValidationError as error:
        # no value is shown: it may be a secret
        problems = [f"{'.'.join(map(str, item['loc'])) or 'the file'}: {item['msg']}"
                    for item in error.errors(include_url=False, include_input=False)]
        raise DocumentError(f"{path} is not a configuration of fleetctl: {'; '.join(problems[:5])}",
                            hint="fix it, or write it with `fleetctl context set`") from None
