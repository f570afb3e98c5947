"""`$(NAME)` in command and args, as in Kubernetes: `$$(NAME)` is an escape, an unknown name stays as it is."""

from __future__ import annotations

import re
from typing import Mapping

_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Return `text` with every known `$(NAME)` replaced; raises KeyError for an unknown FLEETCTL_ one."""

    def replace(match: re.Match[str]) -> str:
        if match.group(0) == "$$":
            return "$"
        name = match.group(1)
        if name in variables:
            return variables[name]
        if name.startswith("FLEETCTL_"):
            raise KeyError(name)
        return match.group(0)

    return _REFERENCE.sub(replace, text)
