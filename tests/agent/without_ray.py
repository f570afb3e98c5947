"""Stands in for Ray in a test's process that imports it and never calls it: that import takes half a second of a core.

Import this before fleetctl's agent. Whatever it takes from Ray is a function that returns None.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

RAY = PathFinder.find_spec("ray")


class Absent(ModuleType):
    """Any module of Ray. It only says where Ray is: its own libraries are no engine's."""

    __file__ = RAY and RAY.origin

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


class Finder:
    """Finds every module of Ray."""

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        is_rays = name.partition(".")[0] == "ray"
        return ModuleSpec(name, self, is_package=True) if is_rays else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return Absent(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        return


sys.meta_path.insert(0, Finder())  # type: ignore[arg-type]
