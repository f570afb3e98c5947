"""Pull request 7 of a repository, and the environment of the job that each push starts."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from checkout import Remote, pull_request_event
from github_stand_in import GitHubStandIn

FLEET = """\
apiVersion: fleetctl/v1
kind: Fleet
metadata: {name: lab}
spec:
  models:
  - key: org/one
    replicas: 1
    workers:
    - name: main
      members:
      - resources: {gpus: 8}
        engine: {command: [serve, one], env: {WORD: "hush-hush"}}
"""


@dataclass
class PullRequest:
    """Pull request 7 of a repository: push to it, and run its job."""

    remote: Remote
    hub: GitHubStandIn
    tmp_path: Path
    main: str
    environ: dict[str, str] = field(default_factory=dict)
    pushes: int = 0

    def push(self, text: str, *, name: str = "fleet.yaml", fork: bool = False, depth: int = 2) -> Path:
        """Push a fleet file to the branch and return the checkout of the job it starts."""
        self.pushes += 1
        head = self.remote.commit("change", text, name)
        event = pull_request_event(self.tmp_path / f"event-{self.pushes}.json", self.main, head, fork=fork)
        checkout = self.remote.check_out(self.tmp_path / f"work-{self.pushes}", "change", depth=depth)
        self.environ = {**self.hub.environment(), "GITHUB_EVENT_PATH": str(event), "GITHUB_WORKSPACE": str(checkout),
                        "GITHUB_REF": "refs/pull/7/merge", "GITHUB_RUN_ID": "99", "GITHUB_ACTOR": "ann",
                        "GITHUB_SERVER_URL": "https://github.example.com",
                        "GITHUB_OUTPUT": str(self.tmp_path / f"output-{self.pushes}"),
                        "GITHUB_STEP_SUMMARY": str(self.tmp_path / f"summary-{self.pushes}")}
        return checkout

    def merge(self, text: str) -> None:
        """Push to main, as after the merge: the event of the job no longer names a pull request."""
        self.push(text)
        event = self.tmp_path / "push.json"
        event.write_text("{}")
        self.environ.update(GITHUB_EVENT_PATH=str(event), GITHUB_REF="refs/heads/main")
