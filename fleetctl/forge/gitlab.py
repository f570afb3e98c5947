"""GitLab: the merge request of a pipeline, its notes over the REST API, a dotenv report for later jobs.

A job's own token may not write notes, so a project access token in GITLAB_TOKEN takes precedence.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from fleetctl.errors import ForgeError
from fleetctl.forge.change import LABEL, ChangeRequest, Forge, dotenv
from fleetctl.forge.http import ForgeClient, json_object
from fleetctl.forge.sticky import OLDEST_FIRST, Fields, Thread

DOTENV_FILE = "fleetctl.env"
"""In the root of the checkout; the job lists it under artifacts:reports:dotenv."""

HOW_TO_WRITE = ("give the job a project access token (role Reporter, scope api) in the masked variable GITLAB_TOKEN; "
                "CI_JOB_TOKEN may not write notes or issues")


class GitLab(Forge):
    """A job of GitLab CI. GitLab has no summary page; the reports are among the job's artifacts."""

    name = "GitLab"
    root_variable = "CI_PROJECT_DIR"
    kind_of_change = "merge request"
    how_to_propose = ("give the job a project access token (role Developer, scope api) in the masked variable "
                      "GITLAB_TOKEN")

    def output(self, values: Mapping[str, str]) -> None:
        """Write the dotenv report as a new file: the change under review may have put a symbolic link in its place."""
        with tempfile.TemporaryDirectory(prefix=".fleetctl-", dir=self.root or None) as folder:
            file = Path(folder) / DOTENV_FILE
            file.write_text(dotenv(values), encoding="utf-8")
            file.replace(Path(self.root) / DOTENV_FILE)

    def _api(self) -> tuple[str, Mapping[str, str], str]:
        project, api = self._environ.get("CI_PROJECT_ID", ""), self._environ.get("CI_API_V4_URL", "")
        if not project or not api:
            raise ForgeError(f"{'CI_API_V4_URL' if project else 'CI_PROJECT_ID'} is not set")
        for variable, header in (("GITLAB_TOKEN", "PRIVATE-TOKEN"), ("CI_JOB_TOKEN", "JOB-TOKEN")):
            if token := self._environ.get(variable):
                return api, {header: token}, f"/projects/{project}"
        raise ForgeError("there is no token for GitLab", hint=HOW_TO_WRITE)

    def _thread(self, client: ForgeClient, path: str, change: ChangeRequest) -> Thread:
        return Thread(client, f"{path}/merge_requests/{change.number}/notes", "PUT", lambda: self._user(client))

    def _issues(self, client: ForgeClient, path: str, title: str) -> Thread:
        fields = Fields(number="iid", text="description", created={"title": title, "labels": LABEL},
                        opened={"state_event": "reopen"}, closed={"state_event": "close"})
        query = {"labels": LABEL, **OLDEST_FIRST}
        return Thread(client, f"{path}/issues", "PUT", lambda: self._user(client), query, fields)

    def _proposals(self, client: ForgeClient, path: str, branch: str, into: str, title: str) -> Thread:
        branches = {"source_branch": branch, "target_branch": into}
        fields = Fields(number="iid", text="description", created={"title": title, **branches},
                        updated={"title": title})
        return Thread(client, f"{path}/merge_requests", "PUT", lambda: self._user(client),
                      {**branches, "state": "opened"}, fields, lists_one=True,
                      is_listed=lambda row: row.get("source_project_id") == row.get("target_project_id"))

    def _hints(self, change: ChangeRequest | None) -> Mapping[int, str]:  # noqa: ARG002 (GitHub needs it)
        return dict.fromkeys((401, 403, 404), HOW_TO_WRITE)

    def _user(self, client: ForgeClient) -> str:
        """Return the user of the token. A job's own token acts for the user who started the pipeline."""
        if not self._environ.get("GITLAB_TOKEN"):
            return self._environ.get("GITLAB_USER_LOGIN", "")
        return str(json_object(client.send("GET", "/user")).get("username", ""))


def merge_request(environ: Mapping[str, str]) -> ChangeRequest | None:
    """Return the merge request of a pipeline; None for a pipeline of a branch or a tag."""
    number = environ.get("CI_MERGE_REQUEST_IID", "")
    if not number.isdigit():
        return None
    # only a merged results pipeline, which runs on a commit of its own, sets the variable for the head
    head = environ.get("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA") or environ.get("CI_COMMIT_SHA") or None
    fork = environ.get("CI_MERGE_REQUEST_SOURCE_PROJECT_ID") != environ.get("CI_MERGE_REQUEST_PROJECT_ID")
    return ChangeRequest(int(number), f"!{number}", environ.get("CI_MERGE_REQUEST_DIFF_BASE_SHA") or None,
                         head, from_fork=fork)
