"""YAML for plain documents: no aliases, so that a small text stays small; no dates, so that a time stays text."""

from __future__ import annotations

from typing import Any

import yaml

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class PlainLoader(_Base):  # type: ignore[misc]
    """Safe YAML without dates, by the C parser where there is one."""

    yaml_implicit_resolvers = {  # noqa: RUF012  PyYAML's own way
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in _Base.yaml_implicit_resolvers.items()
    }


def refuse_aliases(text: str) -> None:
    """Raise MarkedYAMLError at the first alias, before anything it stands for is built."""
    for event in yaml.parse(text, Loader=PlainLoader):
        if isinstance(event, yaml.AliasEvent):
            mark: Any = event.start_mark
            raise yaml.MarkedYAMLError(problem="aliases are not read", problem_mark=mark)
