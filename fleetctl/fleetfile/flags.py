"""The flags of an engine's command line that say something about its cards or its port: read, never written."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import prod

from fleetctl.documents.position import Path
from fleetctl.fleetfile.raw import Raw

_WAYS = {
    **dict.fromkeys(("tensor-parallel-size", "tp-size", "tp"), "tensor"),
    **dict.fromkeys(("pipeline-parallel-size", "pp-size", "pp"), "pipeline"),
}
"""Flags of vLLM, SGLang and TensorRT-LLM, hyphens for underscores, that divide one model over cards."""
_MORE_WAYS = ("data-parallel", "dp", "enable-dp", "context-parallel", "prefill-context-parallel")


def command_line(owner: Raw) -> Iterator[tuple[Path, str]]:
    """Yield the texts of `command` and `args`, each with its place."""
    for key in ("command", "args"):
        yield from owner.texts(key)


def flags(engine: Raw) -> Iterator[tuple[str, str, Path]]:
    """Yield each flag without its hyphens, the text behind its `=` or else the next word, and its place.

    The words of a line for a shell count one by one.
    """
    words = [(word, path) for path, text in command_line(engine) for word in text.split()]
    for (word, path), (following, _) in pairwise([*words, ("", ())]):
        if word.startswith("-"):
            name, _, value = word.partition("=")
            yield name.lstrip("-").replace("_", "-"), value or following, path


def cards_by_flags(engine: Raw) -> tuple[int, bool, Path] | None:
    """Return over how many cards the flags divide the model, whether others may multiply that, and their place.

    None where no flag with a number says so.
    """
    sizes: dict[str, tuple[int, Path]] = {}
    multiplied = False
    for name, value, path in flags(engine):
        multiplied = multiplied or name.startswith(_MORE_WAYS)
        if name in _WAYS and value.isdecimal() and len(value) < 6:
            sizes[_WAYS[name]] = int(value), path
    if not sizes:
        return None
    return prod(size for size, _ in sizes.values()), multiplied, next(iter(sizes.values()))[1]


def fixed_port(engine: Raw) -> tuple[int, Path] | None:
    """Return the number behind `--port`, and its place; None where there is none."""
    return next(((int(value), path) for name, value, path in flags(engine)
                 if name == "port" and value.isdecimal() and 0 < int(value[:6]) < 65536), None)
