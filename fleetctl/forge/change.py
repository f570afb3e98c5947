"""The forge a job runs on: the change under review, and the comment on it. `github.py` and `gitlab.py` fill it in."""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Literal, cast

from fleetctl.errors import ForgeError
from fleetctl.forge.http import ForgeClient
from fleetctl.forge.sticky import Posted, Thread, put_comment

LABEL = "fleetctl"
"""The label of our issues, by which they are found."""
PREFIX = "FLEETCTL_OUT_"
"""Later jobs have them in their environment, where fleetctl reads FLEETCTL_REPORTS and others."""

ForgeName = Literal["auto", "github", "gitlab", "none"]
"""Which forge a run is on, as `--forge` takes it; auto = by its variables."""


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """A pull request of GitHub, a merge request of GitLab; or a group in a merge queue, which has no number.

    `base` and `head` are commits, None where the forge does not name them. `from_fork` = its author may not be able to
    write to the repository, so that the run's token may be a read-only one.
    """

    number: int | None
    label: str
    base: str | None = None
    head: str | None = None
    from_fork: bool = False


class Forge(ABC):
    """A job on a forge, as its environment describes it.

    `change` None = the run is about no change, such as a push to the main branch; `root` is the folder of the checkout,
    "" where it is unknown; `sleep` waits between tries.
    """

    name: ClassVar[str]
    root_variable: ClassVar[str]
    kind_of_change: ClassVar[str]
    how_to_propose: ClassVar[str]

    def __init__(self, environ: Mapping[str, str], change: ChangeRequest | None, *,
                 sleep: Callable[[float], None] = time.sleep) -> None:
        self.change = change
        self.root = environ.get(self.root_variable, "")
        self._environ = environ
        self._sleep = sleep

    def comment(self, body: str) -> Posted | None:
        """Write the one comment whose first line, a hidden marker, is that of `body`.

        Raises ForgeError, which says why and what to do, when the forge does not take it.
        """
        change = self.change
        if change is None or change.number is None:
            raise ForgeError(f"this run is about no {self.kind_of_change}")
        with self._asked(self._hints(change)) as (client, path):
            return put_comment(self._thread(client, path, change), body)

    def issue(self, title: str, body: str, *, is_open: bool) -> Posted | None:
        """Keep the one issue whose first line, a hidden marker, is that of `body`, and open or close it.

        None = there is none, and none is needed. Raises ForgeError as `comment` does.
        """
        with self._asked(self._hints(None)) as (client, path):
            return put_comment(self._issues(client, path, title), body, is_open=is_open)

    def propose(self, branch: str, into: str, title: str, body: str) -> Posted:
        """Open a change that merges one branch into another, or give the open one this title and text.

        Raises ForgeError as `comment` does.
        """
        with self._asked(dict.fromkeys((401, 403, 404), self.how_to_propose)) as (client, path):
            posted = put_comment(self._proposals(client, path, branch, into, title), body)
        return cast("Posted", posted)  # None is for what is to be closed

    def check_access(self) -> None:
        """Raise ForgeError where a token or the address of the repository is missing."""
        self._api()

    @contextmanager
    def _asked(self, hints: Mapping[int, str]) -> Iterator[tuple[ForgeClient, str]]:
        """Give a client of the API, and the repository; `hints` = what to do about an error, by its status."""
        api, headers, path = self._api()
        try:
            with ForgeClient(api, headers, sleep=self._sleep) as client:
                yield client, path
        except ForgeError as error:
            hint = error.hint or hints.get(error.status or 0)
            raise ForgeError(error.message, hint=hint, status=error.status) from None

    def summarise(self, markdown: str) -> None:  # noqa: B027 (GitLab has no such page)
        """Append to the run's summary page, as much as fits; nothing on a forge without one."""

    @abstractmethod
    def output(self, values: Mapping[str, str]) -> None:
        """Hand values to later steps or jobs."""

    @abstractmethod
    def _api(self) -> tuple[str, Mapping[str, str], str]:
        """Return the address of the API, the headers with the token, and the repository; raises ForgeError."""

    @abstractmethod
    def _thread(self, client: ForgeClient, path: str, change: ChangeRequest) -> Thread:
        """Return the comments of a change in a repository."""

    @abstractmethod
    def _issues(self, client: ForgeClient, path: str, title: str) -> Thread:
        """Return the issues with our label in a repository; `title` is that of a new one."""

    @abstractmethod
    def _proposals(self, client: ForgeClient, path: str, branch: str, into: str, title: str) -> Thread:
        """Return the open changes that merge a branch into another."""

    @abstractmethod
    def _hints(self, change: ChangeRequest | None) -> Mapping[int, str]:
        """Return what to do about a refused comment, or without a change about a refused issue, by status."""


def github_outputs(values: Mapping[str, str]) -> str:
    """Return the lines for GITHUB_OUTPUT. Each value is between two lines that cannot be guessed."""
    lines = ""
    for name, value in values.items():
        delimiter = f"fleetctl_{secrets.token_hex(16)}"
        lines += f"{name}<<{delimiter}\n{value}\n{delimiter}\n"
    return lines


def dotenv(values: Mapping[str, str]) -> str:
    """Return the lines of GitLab's dotenv report, as FLEETCTL_OUT_PLAN_ID=...: a value is one line there, unquoted."""
    return "".join(f"{PREFIX}{name.upper()}={' '.join(value.split())}\n" for name, value in values.items())
