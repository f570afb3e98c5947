"""YAML for plain documents: no aliases, so that a small text stays small; no dates, so that times stay text."""

from __future__ import annotations

from typing import Any

import yaml

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class PlainLoader(_Base):  # type: ignore[misc]
    """Safe YAML without dates; uses the C parser if available."""

    yaml_implicit_resolvers = {  # noqa: RUF012  as PyYAML defines it
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in _Base.yaml_implicit_resolvers.items()}


MAX_DEPTH = 100


def load_plain(text: str) -> Any:  # noqa: ANN401  any YAML value
    """Return the value in a text; raises MarkedYAMLError at the first alias, or if it is nested too deeply.

    This is checked before anything is built: an alias can expand enormously, and the C parser recurses without limit.
    """
    depth = 0
    for event in yaml.parse(text, Loader=PlainLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH or isinstance(event, yaml.AliasEvent):
            problem = f"nested deeper than {MAX_DEPTH}" if depth > MAX_DEPTH else "aliases are not supported"
            mark: Any = event.start_mark
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
    return yaml.load(text, Loader=PlainLoader)  # noqa: S506  a subclass of the safe loader


def refuse_duplicates(node: Any) -> None:  # noqa: ANN401  a yaml.Node, or None
    """Raise MarkedYAMLError at a key that a mapping has twice: the last one would silently win."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"duplicate key {key.value}", problem_mark=key.start_mark)
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else "")
            refuse_duplicates(value)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            refuse_duplicates(item)
