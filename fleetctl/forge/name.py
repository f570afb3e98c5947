"""The forges there are, as `--forge` takes them."""

from __future__ import annotations

from enum import Enum


class ForgeName(str, Enum):
    """Which forge a run is on; auto = by its variables."""

    AUTO = "auto"
    GITHUB = "github"
    GITLAB = "gitlab"
    NONE = "none"
