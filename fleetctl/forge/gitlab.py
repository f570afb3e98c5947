"""GitLab: which merge request a pipeline is about, its notes over the REST API, a dotenv report for later jobs.

A job's own token may not write notes, so a project access token in GITLAB_TOKEN comes first.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fleetctl.errors import ForgeError
from fleetctl.forge.change import ChangeRequest, Posted
from fleetctl.forge.http import ForgeClient, json_object, json_objects
from fleetctl.forge.outputs import dotenv
from fleetctl.forge.sticky import Comment, put_comment

PAGE = 100
DOTENV_FILE = "fleetctl.env"
"""Below the checkout; the job names it under artifacts:reports:dotenv."""

HOW_TO_WRITE = ("give the job a project access token (role Reporter, scope api) in the masked variable GITLAB_TOKEN; "
                "CI_JOB_TOKEN may not write notes")


class GitLab:
    """A job of GitLab CI, as its environment describes it."""

    name = "GitLab"

    def __init__(self, environ: Mapping[str, str], change: ChangeRequest | None, *,
                 sleep: Callable[[float], None] = time.sleep) -> None:
        self.change = change
        self.root = environ.get("CI_PROJECT_DIR", "")
        self._environ = environ
        self._sleep = sleep

    def comment(self, body: str) -> Posted:
        """See `Forge`."""
        if self.change is None:
            raise ForgeError("this run is about no merge request")
        project, api = self._environ.get("CI_PROJECT_ID", ""), self._environ.get("CI_API_V4_URL", "")
        if not project or not api:
            raise ForgeError(f"{'CI_API_V4_URL' if project else 'CI_PROJECT_ID'} is not set")
        try:
            with ForgeClient(api, self._token(), sleep=self._sleep) as client:
                thread = MergeRequestThread(client, project, self.change.number, self._me)
                return put_comment(thread, body)
        except ForgeError as error:
            hint = HOW_TO_WRITE if error.status in {401, 403, 404} else None
            raise ForgeError(error.message, hint=error.hint or hint, status=error.status) from None

    def summarise(self, markdown: str) -> None:
        """GitLab has no page for it; the reports among the artifacts are what people open."""

    def output(self, values: Mapping[str, str]) -> None:
        """Write the dotenv report, as a new file: the change under review may have put a link in its place."""
        with tempfile.TemporaryDirectory(prefix=".fleetctl-", dir=self.root or None) as folder:
            file = Path(folder) / DOTENV_FILE
            file.write_text(dotenv(values), encoding="utf-8")
            file.replace(Path(self.root) / DOTENV_FILE)

    def _me(self, client: ForgeClient) -> str:
        """Ask whose token this is; a job's own works for whoever started the pipeline."""
        if not self._environ.get("GITLAB_TOKEN"):
            return self._environ.get("GITLAB_USER_LOGIN", "")
        return str(json_object(client.send("GET", "/user")).get("username", ""))

    def _token(self) -> dict[str, str]:
        if token := self._environ.get("GITLAB_TOKEN"):
            return {"PRIVATE-TOKEN": token}
        if token := self._environ.get("CI_JOB_TOKEN"):
            return {"JOB-TOKEN": token}
        raise ForgeError("there is no token for GitLab", hint=HOW_TO_WRITE)


class MergeRequestThread:
    """The notes of one merge request."""

    def __init__(self, client: ForgeClient, project: str, number: int, me: Callable[[ForgeClient], str]) -> None:
        self._client, self._me = client, me
        self._path = f"/projects/{project}/merge_requests/{number}/notes"

    def me(self) -> str:
        """Return the name of the token's user."""
        return self._me(self._client)

    def comments(self) -> Iterator[Comment]:
        """Yield all notes that people or programs wrote, oldest first."""
        page = "1"
        while page:
            answer = self._client.send("GET", self._path, params={
                "per_page": PAGE, "page": page, "sort": "asc", "order_by": "created_at"})
            yield from (_comment(row) for row in json_objects(answer) if not row.get("system"))
            page = answer.headers.get("x-next-page", "")

    def create(self, body: str) -> Comment:
        """Add a note."""
        return _comment(json_object(self._client.send("POST", self._path, body={"body": body}, creates=True)))

    def update(self, comment_id: int, body: str) -> Comment:
        """Give a note a new text."""
        return _comment(json_object(self._client.send("PUT", f"{self._path}/{comment_id}", body={"body": body})))


def merge_request(environ: Mapping[str, str]) -> ChangeRequest | None:
    """Return the merge request a pipeline is about; None for a pipeline of a branch or a tag."""
    number = environ.get("CI_MERGE_REQUEST_IID", "")
    if not number.isdigit():
        return None
    # a pipeline of merged results runs on a commit of its own, and only there the variable for the head is set
    head = environ.get("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA") or environ.get("CI_COMMIT_SHA") or None
    fork = environ.get("CI_MERGE_REQUEST_SOURCE_PROJECT_ID") != environ.get("CI_MERGE_REQUEST_PROJECT_ID")
    return ChangeRequest(int(number), f"!{number}", environ.get("CI_MERGE_REQUEST_DIFF_BASE_SHA") or None,
                         head, from_fork=fork)


def _comment(row: dict[str, Any]) -> Comment:
    """Read one note. The API tells no address of its own for it."""
    return Comment(row.get("id", 0), (row.get("author") or {}).get("username", ""), row.get("body") or "", "")
