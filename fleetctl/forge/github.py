"""GitHub: which pull request a run is about, its comments over the REST API, the files a step writes to.

Limits: a comment holds 65,536 characters, a step's summary 1 MiB, and the whole summary is refused above that.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fleetctl.errors import ForgeError
from fleetctl.forge.change import ChangeRequest, Posted
from fleetctl.forge.http import ForgeClient, json_object, json_objects
from fleetctl.forge.outputs import github_outputs
from fleetctl.forge.sticky import Comment, put_comment
from fleetctl.forge.summary import fit

ACTIONS_USER = "github-actions[bot]"
"""Who writes with the token that GitHub makes for a job."""

PAGE = 100
SUMMARY_LIMIT = 1024 * 1024
MERGE_REF = re.compile(r"refs/pull/(\d+)/(?:merge|head)")


class GitHub:
    """A job of GitHub Actions, as its environment describes it."""

    name = "GitHub"

    def __init__(self, environ: Mapping[str, str], change: ChangeRequest | None, *,
                 sleep: Callable[[float], None] = time.sleep) -> None:
        self.change = change
        self.root = environ.get("GITHUB_WORKSPACE", "")
        self._environ = environ
        self._sleep = sleep

    def comment(self, body: str) -> Posted:
        """See `Forge`. A token that may not write is what a pull request from a fork has; the hint says so."""
        if self.change is None:
            raise ForgeError("this run is about no pull request")
        token, repository = self._environ.get("GITHUB_TOKEN", ""), self._environ.get("GITHUB_REPOSITORY", "")
        if not token or not repository:
            raise ForgeError(f"{'GITHUB_REPOSITORY' if token else 'GITHUB_TOKEN'} is not set",
                             hint="give the step `env: {GITHUB_TOKEN: ${{ github.token }}}`")
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/vnd.github+json",
                   "X-GitHub-Api-Version": "2022-11-28"}
        api = self._environ.get("GITHUB_API_URL") or "https://api.github.com"
        try:
            with ForgeClient(api, headers, sleep=self._sleep) as client:
                thread = PullRequestThread(client, repository, self.change.number, self._me)
                return put_comment(thread, body)
        except ForgeError as error:
            raise _with_hint(error, from_fork=self.change.from_fork) from None

    def summarise(self, markdown: str) -> None:
        """Append to the step's summary; what does not fit is left out, and it says so."""
        path = self._environ.get("GITHUB_STEP_SUMMARY")
        if path:
            file = Path(path)
            taken = file.stat().st_size if file.exists() else 0
            with file.open("a", encoding="utf-8") as summary:
                summary.write(fit(markdown, SUMMARY_LIMIT - taken))

    def output(self, values: Mapping[str, str]) -> None:
        """Append to the file that holds the step's outputs."""
        path = self._environ.get("GITHUB_OUTPUT")
        if path:
            with Path(path).open("a", encoding="utf-8") as outputs:
                outputs.write(github_outputs(values))

    def _me(self) -> str:
        """Ask whose token this is. GET /user refuses the tokens of apps, and GraphQL's viewer answers all of them."""
        token = self._environ["GITHUB_TOKEN"]
        url = self._environ.get("GITHUB_GRAPHQL_URL") or "https://api.github.com/graphql"
        try:
            with ForgeClient(url, {"Authorization": f"Bearer {token}"}, sleep=self._sleep) as client:
                told = json_object(client.send("POST", "", body={"query": "{viewer{login}}"}))
        except ForgeError as error:
            if error.status is None or error.status >= 500:
                raise
            return ACTIONS_USER
        viewer = (told.get("data") or {}).get("viewer") or {}
        return str(viewer.get("login") or ACTIONS_USER)


class PullRequestThread:
    """The comments of one pull request, which for GitHub is an issue. `me` is asked only once there is a reason."""

    def __init__(self, client: ForgeClient, repository: str, number: int, me: Callable[[], str]) -> None:
        self._client, self._me = client, me
        self._of_issue = f"/repos/{repository}/issues/{number}/comments"
        self._of_repository = f"/repos/{repository}/issues/comments"

    def me(self) -> str:
        """Return the login of the token's user; an app's ends in [bot]."""
        return self._me()

    def comments(self) -> Iterator[Comment]:
        """Yield all comments, page by page."""
        page: int | None = 1
        while page:
            answer = self._client.send("GET", self._of_issue, params={"per_page": PAGE, "page": page})
            yield from (_comment(row) for row in json_objects(answer))
            page = page + 1 if "next" in answer.links else None

    def create(self, body: str) -> Comment:
        """Add a comment."""
        return _comment(json_object(self._client.send("POST", self._of_issue, body={"body": body}, creates=True)))

    def update(self, comment_id: int, body: str) -> Comment:
        """Give a comment a new text."""
        path = f"{self._of_repository}/{comment_id}"
        return _comment(json_object(self._client.send("PATCH", path, body={"body": body})))


def pull_request(environ: Mapping[str, str], event: Mapping[str, Any]) -> ChangeRequest | None:
    """Return the pull request a run is about: from the event that started it, else from the ref it runs on."""
    told = event.get("pull_request")
    if isinstance(told, dict) and isinstance(told.get("number"), int):
        base, head = told.get("base") or {}, told.get("head") or {}
        fork = (head.get("repo") or {}).get("full_name") != (base.get("repo") or {}).get("full_name")
        return ChangeRequest(told["number"], f"#{told['number']}", base.get("sha"), head.get("sha"), from_fork=fork)
    issue = event.get("issue")
    if isinstance(issue, dict) and issue.get("pull_request") and isinstance(issue.get("number"), int):
        return ChangeRequest(issue["number"], f"#{issue['number']}")
    found = MERGE_REF.fullmatch(environ.get("GITHUB_REF", ""))
    return ChangeRequest(int(found[1]), f"#{found[1]}") if found else None


def _comment(row: dict[str, Any]) -> Comment:
    """Read one comment; a deleted account leaves no user."""
    author = (row.get("user") or {}).get("login", "")
    return Comment(row.get("id", 0), author, row.get("body") or "", row.get("html_url", ""))


def _with_hint(error: ForgeError, *, from_fork: bool) -> ForgeError:
    hints = {
        401: "the token is not valid here, or not any more",
        403: "a pull request from a fork has a read-only token: that is as it should be" if from_fork else
             "give the job `permissions: {contents: read, pull-requests: write}`",
        404: "the token cannot see this pull request: is it the one of this repository?",
        422: "GitHub does not take this text as a comment",
    }
    return ForgeError(error.message, hint=error.hint or hints.get(error.status or 0), status=error.status)
