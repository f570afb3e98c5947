"""GitHub and GitLab: which of them this job runs on, by the environment variables each sets, and what is written there.

That is the comment on the change under review, an issue, a proposed change, and the files for a step's outputs and
summary. The first three are threads of comments, see `sticky.py`.

GitHub limits a comment to 65,536 characters and a step's summary to 1 MiB; it rejects a larger summary entirely. On
GitLab a job's own token may not write notes, so a project access token in GITLAB_TOKEN takes precedence; outputs are a
dotenv report for later jobs.
"""

from __future__ import annotations

import json
import re
import secrets
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

from fleetctl.errors import ForgeError
from fleetctl.fleetfile.file_tree import read_whole
from fleetctl.forge.http import ForgeClient, json_object
from fleetctl.forge.sticky import OLDEST_FIRST, Fields, Posted, Thread, put_comment

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


def find_forge(environ: Mapping[str, str], chosen: ForgeName = "auto", *, number: int | None = None) -> Forge | None:
    """Return the forge this run is on, None outside CI. `number` is the change request, if the forge does not name it.

    Raises ForgeError if the event file cannot be read.
    """
    if chosen == "auto":
        chosen = ("github" if environ.get("GITHUB_ACTIONS") == "true" else
                  "gitlab" if environ.get("GITLAB_CI") == "true" else "none")
    if chosen == "github":
        change = pull_request(environ, read_event(environ.get("GITHUB_EVENT_PATH", "")))
        return GitHub(environ, _with_number(change, number, "#"))
    if chosen == "gitlab":
        return GitLab(environ, _with_number(merge_request(environ), number, "!"))
    return None


def read_event(path: str) -> Mapping[str, Any]:
    """Return the event that started a run of GitHub Actions; empty if there is no such file."""
    if not path or not Path(path).is_file():
        return {}
    try:
        event = json.loads(read_whole(path))
    except (OSError, ValueError):
        raise ForgeError(f"the event file of this run cannot be read: {path}") from None
    return event if isinstance(event, dict) else {}


def _with_number(change: ChangeRequest | None, number: int | None, sign: str) -> ChangeRequest | None:
    """Return the change request with the given number, with the commits of a merge queue's group."""
    if number is None or (change is not None and change.number == number):
        return change
    commits = (change.base, change.head) if change is not None and change.number is None else ()
    return ChangeRequest(number, f"{sign}{number}", *commits)


ACTIONS_USER = "github-actions[bot]"
"""The author of everything written with the token that GitHub creates for a job."""

BAD_CREDENTIALS = "the token is invalid or has expired"
SUMMARY_LIMIT = 1024 * 1024
MERGE_REF = re.compile(r"refs/pull/(\d+)/(?:merge|head)")
CUT_NOTE = "\n*The rest of this page does not fit and is omitted. The reports of this run are complete.*\n"
FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


class GitHub(Forge):
    """A job on GitHub Actions."""

    name = "GitHub"
    root_variable = "GITHUB_WORKSPACE"
    file_variables: ClassVar[Mapping[Sink, str]] = {"summary": "GITHUB_STEP_SUMMARY", "outputs": "GITHUB_OUTPUT"}
    kind_of_change = "pull request"
    how_to_propose = ("give the job `permissions: {contents: write, pull-requests: write}`, and let GitHub Actions "
                      "create pull requests in the settings of the repository")

    def summarize(self, markdown: str) -> None:
        """Append to the step's summary, cut to its limit with a note."""
        path = self._environ.get("GITHUB_STEP_SUMMARY")
        if path:
            file = Path(path)
            used = file.stat().st_size if file.exists() else 0
            with file.open("a", encoding="utf-8") as summary:
                summary.write(fit(markdown, SUMMARY_LIMIT - used))

    def output(self, values: Mapping[str, str]) -> None:
        """Append to the file of the step's outputs."""
        path = self._environ.get("GITHUB_OUTPUT")
        if path:
            with Path(path).open("a", encoding="utf-8") as outputs:
                outputs.write(github_outputs(values))

    def _api(self) -> tuple[str, Mapping[str, str], str]:
        token, repository = self._environ.get("GITHUB_TOKEN", ""), self._environ.get("GITHUB_REPOSITORY", "")
        if not token or not repository:
            missing = "repository" if token else "token"
            raise ForgeError(f"GITHUB_{missing.upper()} is not set",
                             hint=f"give the step `env: {{GITHUB_{missing.upper()}: ${{{{ github.{missing} }}}}}}`")
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/vnd.github+json",
                   "X-GitHub-Api-Version": "2022-11-28"}
        return self._environ.get("GITHUB_API_URL") or "https://api.github.com", headers, f"/repos/{repository}"

    def _thread(self, client: ForgeClient, path: str, change: ChangeRequest) -> Thread:
        issues = f"{path}/issues"  # GitHub's API treats comments on a pull request as comments on an issue
        return Thread(client, f"{issues}/{change.number}/comments", "PATCH", self._user, item_path=f"{issues}/comments")

    def _issues(self, client: ForgeClient, path: str, title: str) -> Thread:
        fields = Fields(number="number", created={"title": title, "labels": [LABEL]},
                        opened={"state": "open"}, closed={"state": "closed"})
        query = {"labels": LABEL, "state": "all", "sort": "created", "direction": "asc"}
        return Thread(client, f"{path}/issues", "PATCH", self._user, query, fields)

    def _proposals(self, client: ForgeClient, path: str, branch: str, into: str, title: str) -> Thread:
        repository = path.removeprefix("/repos/")
        owner = repository.partition("/")[0]
        fields = Fields(number="number", created={"title": title, "head": branch, "base": into},
                        updated={"title": title})
        query = {"head": f"{owner}:{branch}", "base": into, "state": "open"}
        return Thread(client, f"{path}/pulls", "PATCH", self._user, query, fields, lists_one=True,
                      is_listed=lambda row: _repository_of(row["head"]).casefold() == repository.casefold())

    def _hints(self, change: ChangeRequest | None) -> Mapping[int, str]:
        if change is None:
            return {401: BAD_CREDENTIALS, 403: "give the job `permissions: {contents: read, issues: write}`",
                    404: "the token cannot see the issues of this repository",
                    410: "issues are disabled in this repository"}
        return {
            401: BAD_CREDENTIALS,
            403: "a pull request from a fork gets a read-only token; this is expected" if change.from_fork else
                 "give the job `permissions: {contents: read, pull-requests: write}`",
            404: "the token cannot see this pull request: does the token belong to this repository?",
            422: "GitHub rejects this text as a comment",
        }

    def _user(self) -> str:
        """Return the user of the token. GraphQL's viewer works for every token; GET /user rejects tokens of apps."""
        token = self._environ["GITHUB_TOKEN"]
        url = self._environ.get("GITHUB_GRAPHQL_URL") or "https://api.github.com/graphql"
        try:
            with ForgeClient(url, {"Authorization": f"Bearer {token}"}, sleep=self._sleep) as client:
                answer = json_object(client.send("POST", "", body={"query": "{viewer{login}}"}))
        except ForgeError as error:
            if error.status is None or error.status >= 500:
                raise
            return ACTIONS_USER
        viewer = (answer.get("data") or {}).get("viewer") or {}
        return str(viewer.get("login") or ACTIONS_USER)


def pull_request(environ: Mapping[str, str], event: Mapping[str, Any]) -> ChangeRequest | None:
    """Return the change request of a run: from the event that started it, else from the ref it runs on."""
    pull = event.get("pull_request")
    if isinstance(pull, dict) and isinstance(pull.get("number"), int):
        base, head = pull.get("base") or {}, pull.get("head") or {}
        return ChangeRequest(pull["number"], f"#{pull['number']}", base.get("sha"), head.get("sha"),
                             from_fork=_repository_of(head) != _repository_of(base))
    group = event.get("merge_group")
    if isinstance(group, dict):
        return ChangeRequest(None, "the merge queue", group.get("base_sha"), group.get("head_sha"))
    issue = event.get("issue")
    if isinstance(issue, dict) and issue.get("pull_request") and isinstance(issue.get("number"), int):
        return ChangeRequest(issue["number"], f"#{issue['number']}")
    ref = MERGE_REF.fullmatch(environ.get("GITHUB_REF", ""))
    return ChangeRequest(int(ref[1]), f"#{ref[1]}") if ref else None


def _repository_of(side: Mapping[str, Any]) -> str:
    """Return `owner/name` of the repository of a base or head; "" for a deleted repository."""
    return str((side.get("repo") or {}).get("full_name") or "")


def fit(markdown: str, limit: int) -> str:
    """Cut `markdown` to `limit` bytes: before a block, with open <details> closed and a note added.

    Returns "" if not even the note fits.
    """
    if len(markdown.encode()) <= limit:
        return markdown
    limit -= len(CUT_NOTE.encode())
    if limit < 0:
        return ""
    best = ""
    text: list[str] = []
    used, fence, folds = 0, "", 0
    for line in markdown.splitlines(keepends=True):
        closing = "</details>\n" * folds
        if not line.strip() and not fence and used + len(closing.encode()) <= limit:
            best = "".join(text) + closing
        fence, folds = _open_after(line, fence, folds)
        text.append(line)
        used += len(line.encode())
        if used > limit:
            break
    return best + CUT_NOTE


def _open_after(line: str, fence: str, folds: int) -> tuple[str, int]:
    """Return the open fence ("" if none) and the number of open <details> after this line."""
    mark = FENCE.match(line)
    if fence:
        return ("" if mark and line.strip() == mark[1] and mark[1].startswith(fence) else fence), folds
    if mark:
        return mark[1], folds
    return "", max(0, folds + line.count("<details") - line.count("</details>"))


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


DOTENV_FILE = "fleetctl.env"
"""In the root of the checkout; the job lists it under artifacts:reports:dotenv."""

HOW_TO_WRITE = ("give the job a project access token (role Reporter, scope api) in the masked variable GITLAB_TOKEN; "
                "CI_JOB_TOKEN may not write notes or issues")


class GitLab(Forge):
    """A job of GitLab CI. GitLab has no summary page; the reports are among the job's artifacts."""

    name = "GitLab"
    root_variable = "CI_PROJECT_DIR"
    file_variables: ClassVar[Mapping[Sink, str]] = {"outputs": "CI_PROJECT_DIR"}
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
