"""The user's configuration file: clusters by name. It says where secrets come from, and holds none.

Read here, and changed value by value in place, comments kept.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from fleetctl.documents.base import Authored
from fleetctl.documents.plain_yaml import is_text_to_all
from fleetctl.errors import DocumentError
from fleetctl.fleetfile.file_tree import read_whole
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
    try:
        return _checked(_parsed(read_whole(path).decode("utf-8"), path), path)
    except FileNotFoundError:
        return Contexts()
    except (OSError, UnicodeDecodeError) as error:
        raise DocumentError(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'not UTF-8 text'}") from None


def change_contexts(path: Path, changes: Mapping[str, object], *below: str) -> Contexts:
    """Write new values into the file, or into the mapping `below` these keys; None removes a key. Comments stay.

    Returns the changed contexts; raises DocumentError and writes nothing if they would not be valid.
    """
    read_contexts(path)
    text, rest = path.read_text(encoding="utf-8") if path.exists() else "", dict(changes)
    for key in [key for key, value in changes.items() if value is None]:
        if (shorter := _without_lines(text, (*below, key))) is not None:
            text = shorter
            del rest[key]
    text = _rewritten(text, rest, *below) if rest else text
    changed = _checked(_parsed(text, path), path)
    write_file(real_path(path), text, mode=0o600, make_folder=True)
    return changed


def _without_lines(text: str, keys: Sequence[str]) -> str | None:
    """Return the text without the lines of a key and the comment right above it; None if the key shares its line.

    ruamel cannot do it: it also removes the comment of the next key. The last key takes its mapping with it.
    """
    import yaml

    from fleetctl.documents.plain_yaml import PlainLoader

    start: Any = None
    value: Any = yaml.compose(text, Loader=PlainLoader)
    for number, key in enumerate(keys, 1):
        entries = value.value if isinstance(value, yaml.MappingNode) and not value.flow_style else []
        start, value = next((entry for entry in entries if entry[0].value == key), (None, None))
        if start is None:
            return None
        if 1 < number == len(keys) and len(entries) == 1:
            return _without_lines(text, keys[:-1])
    lines, first, column = text.splitlines(keepends=True), start.start_mark.line, start.start_mark.column
    while column and lines[first - 1].startswith(" " * column + "#"):
        first -= 1
    return "".join([*lines[:first], *lines[_last_line(value) + 1:]])


def _last_line(node: Any) -> int:  # noqa: ANN401 (PyYAML has no types)
    """Return the number of the last line of a value, from 0; comments after the value do not count."""
    while isinstance(node.value, list) and node.value and not node.flow_style:
        node = node.value[-1][1] if isinstance(node.value[-1], tuple) else node.value[-1]
    line: int = node.end_mark.line
    return line if node.end_mark.column else line - 1


def _rewritten(before: str, changes: Mapping[str, object], *below: str) -> str:
    from ruamel.yaml import YAML  # 0.1 s, and only these commands write

    yaml, out = YAML(), io.StringIO()
    yaml.preserve_quotes = True
    loaded = yaml.load(before)
    tree: dict[str, Any] = loaded or {}
    part = tree
    for key in below:
        part = part.setdefault(_quoted(key), {})
    for key, value in changes.items():
        if value is None:
            part.pop(key, None)
        else:
            part[_quoted(key)] = _quoted(value) if isinstance(value, str) else value
    yaml.dump(tree, out)
    # ruamel attaches comments to values, and so loses those of a text without any value
    return (f"{before.rstrip()}\n" if loaded is None and before.strip() else "") + out.getvalue()


def _quoted(text: str) -> str:
    """Return the text, to be quoted if some YAML reader takes it for another type, such as `on`."""
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    quoted: str = DoubleQuotedScalarString(text)
    return text if is_text_to_all(text) else quoted


def _parsed(text: str, path: Path) -> object:
    import yaml

    from fleetctl.documents.plain_yaml import PlainLoader, load_plain, refuse_duplicates

    try:
        found = load_plain(text) or {}
        refuse_duplicates(yaml.compose(text, Loader=PlainLoader))
        return found
    except yaml.YAMLError as error:
        raise DocumentError(f"{path} is not YAML: {getattr(error, 'problem', None) or error}") from None


def _checked(raw: object, path: Path) -> Contexts:
    try:
        return Contexts.model_validate(raw)
    except ValidationError as error:
        # no value is shown: it may be a secret
        problems = [f"{'.'.join(map(str, item['loc'])) or 'the file'}: {item['msg']}"
                    for item in error.errors(include_url=False, include_input=False)]
        raise DocumentError(f"{path} is not a configuration of fleetctl: {'; '.join(problems[:5])}",
                            hint="fix it, or write it with `fleetctl context set`") from None
