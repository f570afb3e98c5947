"""Stands in for the GitLab API: the notes of one merge request, as GitLab documents them. It records every request."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from stand_in_server import Answer, Request, serving

PROJECT_TOKEN = "glpat-the-token-of-a-project"
JOB_TOKEN = "glcbt-the-token-of-the-job"
NOTES = re.compile(r"/api/v4/projects/42/merge_requests/(\d+)/notes(?:/(\d+))?")
MERGES = re.compile(r"/api/v4/projects/42/merge_requests(?:/(\d+))?")
ISSUES = re.compile(r"/api/v4/projects/42/issues(?:/(\d+))?")


@dataclass
class GitLabStandIn:
    """One project, number 42, with merge requests and their notes."""

    url: str = ""
    users: dict[str, str] = field(default_factory=lambda: {PROJECT_TOKEN: "project_42_bot"})
    merge_requests: dict[int, list[dict[str, Any]]] = field(default_factory=lambda: {5: []})
    issues: list[dict[str, Any]] = field(default_factory=list)
    opened: list[dict[str, Any]] = field(default_factory=list)
    """The merge requests opened through the API."""
    requests: list[Request] = field(default_factory=list)

    def add(self, body: str, username: str, *, system: bool = False) -> dict[str, Any]:
        """Add a note as if its author had written it in the browser."""
        notes = self.merge_requests[5]
        notes.append({"id": 300 + len(notes), "body": body, "author": {"username": username}, "system": system})
        return notes[-1]

    def of(self, username: str) -> list[str]:
        """Return the texts of one author's notes."""
        return [row["body"] for row in self.merge_requests[5] if row["author"]["username"] == username]

    def environment(self, **token: str) -> dict[str, str]:
        """The variables that a runner sets for a job of a merge request's pipeline."""
        return {"GITLAB_CI": "true", "CI": "true", "CI_API_V4_URL": f"{self.url}/api/v4", "CI_PROJECT_ID": "42",
                "CI_MERGE_REQUEST_IID": "5", "CI_MERGE_REQUEST_PROJECT_ID": "42",
                "CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "42", **(token or {"GITLAB_TOKEN": PROJECT_TOKEN})}

    def answer(self, request: Request) -> Answer:
        self.requests.append(request)
        user = self.users.get(request.headers.get("private-token", ""))
        if user is None:
            return Answer(401, {"message": "401 Unauthorized"})
        if request.path == "/api/v4/user":
            return Answer(200, {"id": 9, "username": user})
        if found := ISSUES.fullmatch(request.path):
            return self._issues(request, user, int(found[1] or 0))
        if found := MERGES.fullmatch(request.path):
            return self._merges(request, int(found[1] or 0))
        found = NOTES.fullmatch(request.path)
        if not found or int(found[1]) not in self.merge_requests:
            return Answer(404, {"message": "404 Not found"})
        return self._notes(request, user, found[2])

    def _merges(self, request: Request, iid: int) -> Answer:
        if request.method == "GET":
            return Answer(200, [row for row in self.opened if all(
                row[key] == request.query[key] for key in ("source_branch", "target_branch", "state"))])
        if request.method == "POST":
            iid = 60 + len(self.opened)
            self.opened.append({"iid": iid, "state": "opened", **request.body, "source_project_id": 42,
                                "target_project_id": 42,
                                "web_url": f"https://gitlab.example.com/merge_requests/{iid}"})
            return Answer(201, self.opened[-1])
        row = self.opened[iid - 60]
        row.update(request.body)
        return Answer(200, row)

    def _issues(self, request: Request, user: str, iid: int) -> Answer:
        if request.method == "GET":
            return Answer(200, [row for row in self.issues if request.query["labels"] in row["labels"]])
        if request.method == "POST":
            number = 1 + len(self.issues)
            self.issues.append({"id": 9000 + number, "iid": number, "state": "opened", "author": {"username": user},
                                "web_url": f"https://gitlab.example.com/issues/{number}", **request.body,
                                "labels": request.body["labels"].split(",")})
            return Answer(201, self.issues[-1])
        row = self.issues[iid - 1]
        changed = dict(request.body)
        if event := changed.pop("state_event", None):
            row["state"] = {"close": "closed", "reopen": "opened"}[event]
        row.update(changed)
        return Answer(200, row)

    def _notes(self, request: Request, user: str, note: str | None) -> Answer:
        rows = self.merge_requests[5]
        if request.method == "GET":
            size, page = int(request.query.get("per_page", 20)), int(request.query.get("page", 1))
            more = str(page + 1) if len(rows) > page * size else ""
            return Answer(200, rows[(page - 1) * size : page * size], {"X-Next-Page": more})
        if request.method == "POST" and note is None:
            return Answer(201, self.add(request.body["body"], user))
        row = next((row for row in rows if str(row["id"]) == note), None)
        if request.method != "PUT" or row is None:
            return Answer(404, {"message": "404 Not found"})
        row["body"] = request.body["body"]
        return Answer(200, row)


@contextmanager
def gitlab() -> Iterator[GitLabStandIn]:
    """A separate GitLab on a free port."""
    stand_in = GitLabStandIn()
    with serving(stand_in):
        yield stand_in
