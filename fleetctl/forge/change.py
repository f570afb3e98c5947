"""The forge a job runs on: the change under review and the comment on it; see `forges.py`."""

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
"""The label on our issues, used to find them."""
PREFIX = "FLEETCTL_OUT_"
"""Keeps outputs in a later job's environment apart from variables that fleetctl reads, such as FLEETCTL_REPORTS."""

ForgeName = Literal["auto", "github", "gitlab", "none"]
"""The values of `--forge`; auto = detect the forge by its environment variables."""
Sink = Literal["comment", "summary", "outputs"]
"""Where a job's result goes on a forge: a comment on the change, the job's summary page, values for later steps."""


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """A pull request (GitHub), a merge request (GitLab), or a group in a merge queue, which has no number.

    `base` and `head` are commits, None if the forge does not name them. `from_fork`: the author may lack write access
    to the repository, so the run's token may be read-only.
    """

    number: int | None
    label: str
    base: str | None = None
    head: str | None = None
    from_fork: bool = False


class Forge(ABC):
    """A job on a forge, as its environment describes it.

    `change` is None for a run without a change request, such as a push to the main branch. `root` is the folder of the
    checkout, "" if unknown. `sleep` waits between tries. `file_variables` name the files that a job is given.
    """

    name: ClassVar[str]
    root_variable: ClassVar[str]
    file_variables: ClassVar[Mapping[Sink, str]]
    kind_of_change: ClassVar[str]
    how_to_propose: ClassVar[str]

    def __init__(self, environ: Mapping[str, str], change: ChangeRequest | None, *,
                 sleep: Callable[[float], None] = time.sleep) -> None:
        self.change = change
        self.root = environ.get(self.root_variable, "")
        self._environ = environ
        self._sleep = sleep

    def comment(self, body: str) -> Posted | None:
        """Create or update the comment identified by the first line of `body`, a hidden marker.

        Raises ForgeError, with the reason and what to do, if the forge refuses it.
        """
        change = self.change
        if change is None or change.number is None:
            raise ForgeError(f"this run does not belong to a {self.kind_of_change}")
        with self._connected(self._hints(change)) as (client, path):
            return put_comment(self._thread(client, path, change), body)

    def issue(self, title: str, body: str, *, is_open: bool) -> Posted | None:
        """Create or update the issue identified by the first line of `body`, a hidden marker, and open or close it.

        Returns None if there is no issue and none is needed. Raises ForgeError as `comment` does.
        """
        with self._connected(self._hints(None)) as (client, path):
            return put_comment(self._issues(client, path, title), body, is_open=is_open)

    def propose(self, branch: str, into: str, title: str, body: str) -> Posted:
        """Open a change request that merges `branch` into `into`, or update title and text of the one already open.

        Raises ForgeError as `comment` does.
        """
        with self._connected(dict.fromkeys((401, 403, 404), self.how_to_propose)) as (client, path):
            posted = put_comment(self._proposals(client, path, branch, into, title), body)
        return cast("Posted", posted)  # None is only returned with is_open=False

    def check_access(self) -> str:
        """Return the API's address; raises ForgeError if a token or the address of the repository is missing."""
        return self._api()[0]

    def require(self, sink: Sink) -> None:
        """Raise ForgeError, which says what is missing, if this run cannot have that sink."""
        if sink == "comment":
            if self.change is None or self.change.number is None:
                raise ForgeError(f"this run does not belong to a {self.kind_of_change}")
            self.check_access()
        elif sink not in self.file_variables:
            raise ForgeError(f"{self.name} has no {sink} page for a job")
        elif not self._environ.get(self.file_variables[sink]):
            raise ForgeError(f"{self.file_variables[sink]} is not set")

    @contextmanager
    def _connected(self, hints: Mapping[int, str]) -> Iterator[tuple[ForgeClient, str]]:
        """Yield a client of the API and the repository's path. `hints` says what to do about an error, by status."""
        api, headers, path = self._api()
        try:
            with ForgeClient(api, headers, sleep=self._sleep) as client:
                yield client, path
        except ForgeError as error:
            hint = error.hint or hints.get(error.status or 0)
            raise ForgeError(error.message, hint=hint, status=error.status) from None

    def summarize(self, markdown: str) -> None:  # noqa: B027 (GitLab has no such page)
        """Append to the run's summary page, cut to its limit; does nothing on a forge without one."""

    @abstractmethod
    def output(self, values: Mapping[str, str]) -> None:
        """Pass values to later steps or jobs."""

    @abstractmethod
    def _api(self) -> tuple[str, Mapping[str, str], str]:
        """Return the API's address, the headers with the token, and the repository's path; raises ForgeError."""

    @abstractmethod
    def _thread(self, client: ForgeClient, path: str, change: ChangeRequest) -> Thread:
        """Return the comments of a change in a repository."""

    @abstractmethod
    def _issues(self, client: ForgeClient, path: str, title: str) -> Thread:
        """Return the issues with our label in a repository; `title` is for a new issue."""

    @abstractmethod
    def _proposals(self, client: ForgeClient, path: str, branch: str, into: str, title: str) -> Thread:
        """Return the open change requests that merge `branch` into `into`."""

    @abstractmethod
    def _hints(self, change: ChangeRequest | None) -> Mapping[int, str]:
        """Return what to do about a refused comment (without a change: a refused issue), by status."""


def github_outputs(values: Mapping[str, str]) -> str:
    """Return the lines for GITHUB_OUTPUT. Each value is enclosed by two random delimiter lines."""
    lines = ""
    for name, value in values.items():
        delimiter = f"fleetctl_{secrets.token_hex(16)}"
        lines += f"{name}<<{delimiter}\n{value}\n{delimiter}\n"
    return lines


def dotenv(values: Mapping[str, str]) -> str:
    """Return the lines of GitLab's dotenv report, such as FLEETCTL_OUT_PLAN_ID=...; each value is one unquoted line."""
    return "".join(f"{PREFIX}{name.upper()}={' '.join(value.split())}\n" for name, value in values.items())
