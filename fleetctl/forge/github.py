"""GitHub: which pull request a run is about, its comments over the REST API, the files a step writes to.

Limits: a comment holds 65,536 characters, a step's summary 1 MiB, and the whole summary is refused above that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fleetctl.errors import ForgeError
from fleetctl.forge.change import LABEL, ChangeRequest, Forge, github_outputs
from fleetctl.forge.http import ForgeClient, json_object
from fleetctl.forge.sticky import Thread, Wording

ACTIONS_USER = "github-actions[bot]"
"""The author of what is written with the token that GitHub makes for a job."""

NOT_VALID = "the token is not valid here, or not any more"
SUMMARY_LIMIT = 1024 * 1024
MERGE_REF = re.compile(r"refs/pull/(\d+)/(?:merge|head)")
NOTE = "\n*The rest of this page is left out: it would not fit. The reports of this run have all of it.*\n"
FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


class GitHub(Forge):
    """A job of GitHub Actions."""

    name = "GitHub"
    root_variable = "GITHUB_WORKSPACE"
    kind_of_change = "pull request"
    how_to_propose = ("give the job `permissions: {contents: write, pull-requests: write}`, and let GitHub Actions "
                      "create pull requests in the settings of the repository")

    def summarise(self, markdown: str) -> None:
        """Append to the step's summary; a note says so where a part does not fit and is left out."""
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

    def _api(self) -> tuple[str, Mapping[str, str], str]:
        token, repository = self._environ.get("GITHUB_TOKEN", ""), self._environ.get("GITHUB_REPOSITORY", "")
        if not token or not repository:
            lacks, value = ("REPOSITORY", "repository") if token else ("TOKEN", "token")
            raise ForgeError(f"GITHUB_{lacks} is not set",
                             hint=f"give the step `env: {{GITHUB_{lacks}: ${{{{ github.{value} }}}}}}`")
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/vnd.github+json",
                   "X-GitHub-Api-Version": "2022-11-28"}
        return self._environ.get("GITHUB_API_URL") or "https://api.github.com", headers, f"/repos/{repository}"

    def _thread(self, client: ForgeClient, path: str, change: ChangeRequest) -> Thread:
        issues = f"{path}/issues"  # for GitHub the comments of a pull request are those of an issue
        return Thread(client, f"{issues}/{change.number}/comments", "PATCH", self._me, one=f"{issues}/comments")

    def _issues(self, client: ForgeClient, path: str, title: str) -> Thread:
        wording = Wording(number="number", created={"title": title, "labels": [LABEL]},
                          opened={"state": "open"}, closed={"state": "closed"})
        listed = {"labels": LABEL, "state": "all", "sort": "created", "direction": "asc"}
        return Thread(client, f"{path}/issues", "PATCH", self._me, listed, wording)

    def _proposals(self, client: ForgeClient, path: str, branch: str, into: str, title: str) -> Thread:
        repository = path.removeprefix("/repos/")
        owner = repository.partition("/")[0]
        wording = Wording(number="number", created={"title": title, "head": branch, "base": into},
                          updated={"title": title})
        listed = {"head": f"{owner}:{branch}", "base": into, "state": "open"}
        return Thread(client, f"{path}/pulls", "PATCH", self._me, listed, wording, of_one=True,
                      counts=lambda row: ((row["head"].get("repo") or {}).get("full_name") or "").casefold()
                      == repository.casefold())

    def _hints(self, change: ChangeRequest | None) -> Mapping[int, str]:
        if change is None:
            return {401: NOT_VALID, 403: "give the job `permissions: {contents: read, issues: write}`",
                    404: "the token cannot see the issues of this repository",
                    410: "issues are switched off in this repository"}
        return {
            401: NOT_VALID,
            403: "a pull request from a fork has a read-only token: that is as it should be" if change.from_fork else
                 "give the job `permissions: {contents: read, pull-requests: write}`",
            404: "the token cannot see this pull request: is it the one of this repository?",
            422: "GitHub does not take this text as a comment",
        }

    def _me(self) -> str:
        """Ask whose token this is. GET /user refuses the tokens of apps, and GraphQL's viewer answers all of them."""
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
    """Return the pull request a run is about: from the event that started it, else from the ref it runs on."""
    pull = event.get("pull_request")
    if isinstance(pull, dict) and isinstance(pull.get("number"), int):
        base, head = pull.get("base") or {}, pull.get("head") or {}
        fork = (head.get("repo") or {}).get("full_name") != (base.get("repo") or {}).get("full_name")
        return ChangeRequest(pull["number"], f"#{pull['number']}", base.get("sha"), head.get("sha"), from_fork=fork)
    issue = event.get("issue")
    if isinstance(issue, dict) and issue.get("pull_request") and isinstance(issue.get("number"), int):
        return ChangeRequest(issue["number"], f"#{issue['number']}")
    found = MERGE_REF.fullmatch(environ.get("GITHUB_REF", ""))
    return ChangeRequest(int(found[1]), f"#{found[1]}") if found else None


def fit(markdown: str, room: int) -> str:
    """Return as much of `markdown` as `room` bytes hold, cut before a block, with open folds closed and a note.

    Returns "" where not even the note has room.
    """
    if len(markdown.encode()) <= room:
        return markdown
    room -= len(NOTE.encode())
    best = "" if room >= 0 else None
    text: list[str] = []
    used, fence, folds = 0, "", 0
    for line in markdown.splitlines(keepends=True):
        closing = "</details>\n" * folds
        if not line.strip() and not fence and used + len(closing.encode()) <= room:
            best = "".join(text) + closing
        fence, folds = _after(line, fence, folds)
        text.append(line)
        used += len(line.encode())
        if used > room:
            break
    return best + NOTE if best is not None else ""


def _after(line: str, fence: str, folds: int) -> tuple[str, int]:
    """Return the open fence ("" = none) and how many folds are open after this line."""
    mark = FENCE.match(line)
    if fence:
        return ("" if mark and line.strip() == mark[1] and mark[1].startswith(fence) else fence), folds
    if mark:
        return mark[1], folds
    return "", max(0, folds + line.count("<details") - line.count("</details>"))
