"""Reads the flags of an engine's command line that set its number of cards or its port."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import prod

from fleetctl.documents.position import Path
from fleetctl.fleetfile.raw import Raw

_DIVIDING = {
    **dict.fromkeys(("tensor-parallel-size", "tp-size", "tp"), "tensor"),
    **dict.fromkeys(("pipeline-parallel-size", "pp-size", "pp"), "pipeline"),
}
"""Flags of vLLM, SGLang and TensorRT-LLM, with hyphens for underscores, that divide one model over cards."""
_MULTIPLYING = ("data-parallel", "dp", "enable-dp", "context-parallel", "prefill-context-parallel")
"""Prefixes of flags that may multiply that number of cards."""


def command_line(owner: Raw) -> Iterator[tuple[Path, str]]:
    """Yield the texts of `command` and `args`, each with its path."""
    for key in ("command", "args"):
        yield from owner.texts(key)


def flags(engine: Raw) -> Iterator[tuple[str, str, Path]]:
    """Yield each flag without its hyphens, the text after its `=` or else the next word, and its path.

    A shell command line in one text is split into its words.
    """
    words = [(word, path) for path, text in command_line(engine) for word in text.split()]
    for (word, path), (following, _) in pairwise([*words, ("", ())]):
        if word.startswith("-"):
            name, _, value = word.partition("=")
            yield name.lstrip("-").replace("_", "-"), value or following, path


def cards_by_flags(engine: Raw) -> tuple[int, bool, Path] | None:
    """Return the number of cards the flags divide the model over, whether other flags may multiply it, and a path.

    The path is that of the first such flag. None if no flag has a number.
    """
    sizes: dict[str, tuple[int, Path]] = {}
    multiplied = False
    for name, value, path in flags(engine):
        multiplied = multiplied or name.startswith(_MULTIPLYING)
        if name in _DIVIDING and value.isdecimal() and len(value) < 6:
            sizes[_DIVIDING[name]] = int(value), path
    if not sizes:
        return None
    return prod(size for size, _ in sizes.values()), multiplied, next(iter(sizes.values()))[1]


def fixed_port(engine: Raw) -> tuple[int, Path] | None:
    """Return the number after `--port`, and its path; None if there is none."""
    return next(((int(value), path) for name, value, path in flags(engine)
                 if name == "port" and value.isdecimal() and 0 < int(value[:6]) < 65536), None)
