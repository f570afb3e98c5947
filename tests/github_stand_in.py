"""Stands in for the GitHub API: the comments of pull requests, tokens that may read or write, limits.

It answers as GitHub documents it: pages with a Link header, 401 Bad credentials, 403 for a read-only token and for
rate limits, 404 for what the token cannot see, 422 for a text that is too long. It records every request.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from stand_in_server import Answer, Request, serving

REPOSITORY = "lab/fleet"
JOB_TOKEN = "ghs_the-token-of-the-job"
READ_ONLY_TOKEN = "ghs_the-token-of-a-fork"
PERSON_TOKEN = "ghp_the-token-of-a-person"
LONGEST_BODY = 65_536
ISSUE = re.compile(rf"/repos/{REPOSITORY}/issues/(\d+)/comments")
COMMENT = re.compile(rf"/repos/{REPOSITORY}/issues/comments/(\d+)")
ISSUES = re.compile(rf"/repos/{REPOSITORY}/issues(?:/(\d+))?")
PULLS = re.compile(rf"/repos/{REPOSITORY}/pulls(?:/(\d+))?")
NOT_FOUND = Answer(404, {"message": "Not Found"})
NOT_ALLOWED = Answer(403, {"message": "Resource not accessible by integration"})


@dataclass
class GitHubStandIn:
    """One repository. `refusals` = responses to give instead, one per request of that method."""

    url: str = ""
    logins: dict[str, str] = field(default_factory=lambda: {
        JOB_TOKEN: "github-actions[bot]", READ_ONLY_TOKEN: "github-actions[bot]", PERSON_TOKEN: "octo-lab"})
    pulls: dict[int, list[dict[str, Any]]] = field(default_factory=lambda: {7: []})
    issues: list[dict[str, Any]] = field(default_factory=list)
    opened: list[dict[str, Any]] = field(default_factory=list)
    """The pull requests opened through the API."""
    refusals: dict[str, list[Answer]] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    has_graphql: bool = True

    def add(self, body: str, login: str, pull: int = 7) -> dict[str, Any]:
        """Add a comment as if its author had written it in the browser."""
        number = 1000 + sum(len(one) for one in self.pulls.values())
        row = {"id": number, "user": {"login": login}, "body": body,
               "html_url": f"https://github.example.com/{REPOSITORY}/pull/{pull}#issuecomment-{number}"}
        self.pulls[pull].append(row)
        return row

    def of(self, login: str, pull: int = 7) -> list[str]:
        """Return the texts of one author's comments."""
        return [row["body"] for row in self.pulls[pull] if row["user"]["login"] == login]

    def writes(self) -> list[tuple[str, str]]:
        """Return the requests that change something."""
        return [(one.method, one.path) for one in self.requests if one.method in {"POST", "PATCH", "PUT", "DELETE"}
                and one.path != "/graphql"]

    def environment(self, token: str = JOB_TOKEN) -> dict[str, str]:
        """The variables that a runner sets for a job that talks to this stand-in."""
        return {"GITHUB_ACTIONS": "true", "CI": "true", "GITHUB_API_URL": self.url, "GITHUB_TOKEN": token,
                "GITHUB_GRAPHQL_URL": f"{self.url}/graphql", "GITHUB_REPOSITORY": REPOSITORY}

    def answer(self, request: Request) -> Answer:
        self.requests.append(request)
        if self.refusals.get(request.method):
            return self.refusals[request.method].pop(0)
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in self.logins:
            return Answer(401, {"message": "Bad credentials"})
        if request.path == "/graphql":
            viewer = {"data": {"viewer": {"login": self.logins[token]}}}
            return Answer(200, viewer) if self.has_graphql else NOT_FOUND
        if found := ISSUE.fullmatch(request.path):
            return self._issue(request, int(found[1]), token)
        if found := COMMENT.fullmatch(request.path):
            return self._comment(request, int(found[1]), token)
        if found := ISSUES.fullmatch(request.path):
            return self._refused(request, token) or self._issues(request, int(found[1] or 0), token)
        if found := PULLS.fullmatch(request.path):
            return self._refused(request, token) or self._pulls(request, int(found[1] or 0))
        return NOT_FOUND

    def _issues(self, request: Request, number: int, token: str) -> Answer:
        if request.method == "GET":
            named = {request.query["labels"]} if "labels" in request.query else set()
            wanted = {"open", "closed"} if request.query.get("state") == "all" else {request.query.get("state", "open")}
            return self._page(request, [row for row in self.issues if row["state"] in wanted
                                        and named <= {one["name"] for one in row["labels"]}])
        if request.method == "POST":
            number = 20 + len(self.issues)
            self.issues.append({
                "number": number, "id": 10**9 + number, "user": {"login": self.logins[token]}, "state": "open",
                "title": request.body["title"], "body": request.body["body"],
                "labels": [{"name": name} for name in request.body.get("labels", ())],
                "html_url": f"https://github.example.com/{REPOSITORY}/issues/{number}"})
            return Answer(201, self.issues[-1])
        row = next((row for row in self.issues if row["number"] == number), None)
        if row is None or request.method != "PATCH":
            return NOT_FOUND
        row.update(request.body)
        return Answer(200, row)

    def _pulls(self, request: Request, number: int) -> Answer:
        owner = REPOSITORY.partition("/")[0]
        if request.method == "GET":
            return Answer(200, [row for row in self.opened if row["state"] == request.query["state"] and
                                (row["head"]["ref"], row["base"]["ref"]) == (
                                    request.query["head"].removeprefix(f"{owner}:"), request.query["base"])])
        if request.method == "POST":
            if any(row["head"] == {"ref": request.body["head"], "repo": {"full_name": REPOSITORY}}
                   and row["state"] == "open" for row in self.opened):
                return Answer(422, {"message": "Validation Failed", "errors": [
                    {"message": f"A pull request already exists for {owner}:{request.body['head']}."}]})
            number = 50 + len(self.opened)
            self.opened.append({"number": number, "state": "open", "user": {"login": "somebody"}, **request.body,
                                "head": {"ref": request.body["head"], "repo": {"full_name": REPOSITORY}},
                                "base": {"ref": request.body["base"], "repo": {"full_name": REPOSITORY}},
                                "html_url": f"https://github.example.com/{REPOSITORY}/pull/{number}"})
            return Answer(201, self.opened[-1])
        row = self.opened[number - 50]
        row.update(request.body)
        return Answer(200, row)

    def _issue(self, request: Request, pull: int, token: str) -> Answer:
        if pull not in self.pulls:
            return NOT_FOUND
        if request.method == "GET":
            return self._page(request, self.pulls[pull])
        if request.method != "POST":
            return NOT_FOUND
        return self._refused(request, token) or Answer(201, self.add(request.body["body"], self.logins[token], pull))

    def _comment(self, request: Request, number: int, token: str) -> Answer:
        row = next((row for rows in self.pulls.values() for row in rows if row["id"] == number), None)
        if row is None or request.method != "PATCH":
            return NOT_FOUND
        if refused := self._refused(request, token):
            return refused
        row["body"] = request.body["body"]
        return Answer(200, row)

    def _refused(self, request: Request, token: str) -> Answer | None:
        if request.method == "GET":
            return None
        if token == READ_ONLY_TOKEN:
            return NOT_ALLOWED
        if not request.body["body"] or len(request.body["body"]) > LONGEST_BODY:
            return Answer(422, {"message": "Validation Failed", "errors": ["body is too long"]})
        return None

    def _page(self, request: Request, rows: list[dict[str, Any]]) -> Answer:
        size, page = min(100, int(request.query.get("per_page", 30))), int(request.query.get("page", 1))
        shown, more = rows[(page - 1) * size : page * size], len(rows) > page * size
        link = f'<{self.url}{request.path}?per_page={size}&page={page + 1}>; rel="next"'
        return Answer(200, shown, {"Link": link} if more else {})


@contextmanager
def github() -> Iterator[GitHubStandIn]:
    """A separate GitHub on a free port."""
    stand_in = GitHubStandIn()
    with serving(stand_in):
        yield stand_in
