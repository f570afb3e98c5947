"""What a forge says about the run: the change under review, and what came of a comment on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """A pull request of GitHub, a merge request of GitLab.

    `base` and `head` are commits, None where the forge does not tell. `from_fork` = its author may not be able to
    write to the repository, so that the run's token may be a read-only one.
    """

    number: int
    label: str
    base: str | None = None
    head: str | None = None
    from_fork: bool = False


@dataclass(frozen=True, slots=True)
class Posted:
    """A comment that stands. `created` False = the one that stood there before was brought up to date."""

    url: str
    created: bool


class Forge(Protocol):
    """The place a change is reviewed on. `change` None = this run is about none, such as a push to the main branch."""

    @property
    def name(self) -> str:
        """Return the forge's name as people write it."""

    @property
    def change(self) -> ChangeRequest | None:
        """Return the change under review."""

    @property
    def root(self) -> str:
        """Return the folder of the checkout, "" where the forge does not tell."""

    def comment(self, body: str) -> Posted:
        """Write the one comment whose first line, a hidden marker, is that of `body`.

        Raises ForgeError, which says why and what to do, when the forge does not take it.
        """

    def summarise(self, markdown: str) -> None:
        """Append to the run's summary page, as much as fits; nothing where the forge has no such page."""

    def output(self, values: Mapping[str, str]) -> None:
        """Hand values to later steps or jobs."""
