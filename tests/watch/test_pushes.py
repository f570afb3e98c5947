"""Webhooks of forges end the rest of a watch: who may, how often, and what strangers can do."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from cluster_stand_in import ClusterStandIn
from small_watcher import FLEET

from fleetctl.cli import watch, watch_server
from fleetctl.cli.watch_server import Served, serving
from fleetctl.demo.lifecycle import free_port
from fleetctl.documents.events import ReplicaOutcome
from fleetctl.watch import pushes as pushes_module
from fleetctl.watch.pushes import KEPT, MAX_BODY, SKEW_S, Pushes
from fleetctl.watch.watcher import Watcher

SECRET, NOW = "s3cret of the hook", 1_772_625_600.0
BODY = json.dumps({"ref": "refs/heads/main", "after": "91b15c08c0"}).encode()
Signed = Callable[[bytes, str], dict[str, str]]


def hexadecimal(body: bytes, secret: str) -> str:
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def of_github(body: bytes, secret: str) -> dict[str, str]:
    return {"X-GitHub-Event": "push", "X-Hub-Signature-256": f"sha256={hexadecimal(body, secret)}"}


def of_gitea(body: bytes, secret: str) -> dict[str, str]:
    return {"X-Gitea-Event": "push", "X-Gitea-Signature": hexadecimal(body, secret)}


def of_forgejo(body: bytes, secret: str) -> dict[str, str]:
    return {"X-Forgejo-Event": "push", "X-Forgejo-Signature": hexadecimal(body, secret)}


def of_gitlab(body: bytes, secret: str) -> dict[str, str]:
    return {"X-Gitlab-Event": "Push Hook", "X-Gitlab-Event-UUID": hexadecimal(body, "")[:8], "X-Gitlab-Token": secret}


def standard(body: bytes, secret: str, at: float = NOW, key: bytes | None = None) -> dict[str, str]:
    signed = f"msg_1.{at:.0f}.".encode() + body
    mac = hmac.new(secret.encode() if key is None else key, signed, hashlib.sha256).digest()
    return {"webhook-id": "msg_1", "webhook-timestamp": f"{at:.0f}",
            "webhook-signature": f"v1,AAAA v1,{base64.b64encode(mac).decode()}"}


FORGES: list[Signed] = [of_github, of_gitea, of_forgejo, of_gitlab, standard]


@pytest.fixture
def pushes() -> Pushes:
    return Pushes(SECRET.encode(), lambda: NOW)


@pytest.fixture
def served(watcher: Watcher, pushes: Pushes) -> Iterator[Served]:
    with serving(watcher, "127.0.0.1:0", "token-of-the-page", (), pushes) as found:
        assert found
        yield found


def post(url: str, headers: Mapping[str, str], body: bytes = BODY, path: str = "/push") -> int:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=300)
    connection.request("POST", path, body, dict(headers))
    with connection.getresponse() as answer:
        answer.read()
        return answer.status


def test_a_push_counts_once_and_only_with_the_secret(served: Served, pushes: Pushes) -> None:
    for number, signed in enumerate(FORGES):
        body, other = BODY + str(number).encode(), BODY + str(number + 10).encode()
        assert post(served.url, signed(body, "another secret"), body) == 401
        assert not pushes.wait(0)
        assert post(served.url, signed(body, SECRET), body) == 202
        assert pushes.wait(0.01)
        assert post(served.url, signed(body, SECRET), body) == 200
        assert not pushes.wait(0)
        assert post(served.url, signed(other, SECRET), other) == 202
        assert pushes.wait(0.01)
    assert pushes.counts == {"accepted": 10, "replayed": 5, "refused": 5}


def test_gitlab_tells_two_pushes_with_the_same_body_apart_by_their_ids(pushes: Pushes) -> None:
    for about, outcome in (("a", "accepted"), ("a", "replayed"), ("b", "accepted"), (None, "accepted")):
        delivery = pushes.begin({"X-Gitlab-Token": SECRET, **({"X-Gitlab-Event-UUID": about} if about else {})})
        assert delivery
        delivery.add(BODY)
        assert pushes.take(delivery) == outcome


def test_a_signature_is_of_each_byte_of_the_body(served: Served) -> None:
    rng = random.Random(7)
    for number, signed in enumerate(one for one in FORGES if one is not of_gitlab):
        body = BODY + str(number).encode()
        headers = signed(body, SECRET)
        for _ in range(20):
            changed = bytearray(body)
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
            assert post(served.url, headers, bytes(changed)) == 401
        assert post(served.url, headers, body + b" ") == 401
        assert post(served.url, headers, body) == 202


def test_an_old_standard_webhook_is_refused(served: Served) -> None:
    for at in (NOW - SKEW_S - 1, NOW + SKEW_S + 1, 1e12):
        assert post(served.url, standard(BODY, SECRET, at)) == 401
    assert post(served.url, standard(BODY, SECRET, NOW - SKEW_S + 1)) == 202


def test_a_signing_token_of_standard_webhooks_is_base64(watcher: Watcher) -> None:
    key = b"0123456789abcdef01234567"
    token = b"whsec_" + base64.b64encode(key)
    with serving(watcher, "127.0.0.1:0", None, (), Pushes(token, lambda: NOW)) as found:
        assert found
        assert post(found.url, standard(BODY, "", key=key)) == 202


PROVE_NOTHING: list[dict[str, str]] = [
    {}, {"X-Hub-Signature-256": ""}, {"X-Hub-Signature-256": "sha256="}, {"X-Hub-Signature": "sha1=00"},
    {"X-Hub-Signature-256": "sha256=\xff\xfe"}, {"X-Gitlab-Token": ""}, {"X-Gitlab-Token": "\xe9"},
    {"webhook-signature": "v1,"}, {"webhook-signature": "v1,x", "webhook-timestamp": "-1", "webhook-id": "1"},
    {"webhook-signature": "v1,x", "webhook-timestamp": "9" * 4000}, {"Authorization": "Bearer token-of-the-page"},
]


def test_nothing_else_proves_the_secret(served: Served, pushes: Pushes) -> None:
    assert [post(served.url, headers) for headers in PROVE_NOTHING] == [401] * len(PROVE_NOTHING)
    assert not pushes.wait(0)


def test_other_requests_and_lengths_are_refused(served: Served, watcher: Watcher) -> None:
    assert post(served.url, of_github(BODY, SECRET), path="/") == 404
    for length, status in ((str(MAX_BODY + 1), 413), ("-1", 411), ("9" * 5000, 411), ("x", 411), ("\xb2", 411)):
        assert post(served.url, {**of_github(BODY, SECRET), "Content-Length": length}, b"") == status
    with serving(watcher, "127.0.0.1:0", None) as without:
        assert without
        assert post(without.url, of_github(BODY, SECRET)) == 404


def test_a_body_that_does_not_come_ends_after_the_time_of_a_request(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_server, "REQUEST_S", 0.5)
    host, port = served.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 30) as slow:
        slow.sendall(b"POST /push HTTP/1.1\r\nHost: x\r\nX-Hub-Signature-256: sha256=0\r\nContent-Length: 900\r\n\r\n{")
        assert slow.recv(100) == b""


def test_slow_bodies_of_strangers_keep_no_webhook_out(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_server, "REQUEST_S", 3600.0)
    host, port = served.url.removeprefix("http://").split(":")
    with ExitStack() as opened:
        for number in range(2 * watch_server.MAX_CONNECTIONS):
            slow = socket.create_connection((host, int(port)), 30, (f"127.0.0.{2 + number % 8}", 0))
            opened.enter_context(slow).sendall(
                b"POST /push HTTP/1.1\r\nX-Hub-Signature-256: sha256=0\r\nContent-Length: 900\r\n\r\n{")
        assert post(served.url, of_github(BODY, SECRET)) == 202


def test_a_large_body_is_not_kept(served: Served) -> None:
    import resource

    large = b"x" * MAX_BODY
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert post(served.url, of_github(large, SECRET), large) == 202
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MAX_BODY >> 10


def test_the_memory_of_deliveries_is_bounded(pushes: Pushes) -> None:
    for number in range(KEPT + 10):
        body = str(number).encode()
        delivery = pushes.begin(of_github(body, SECRET))
        assert delivery
        delivery.add(body)
        assert pushes.take(delivery) == "accepted"
    assert len(pushes._seen) == KEPT


def test_a_flood_of_pushes_leads_to_a_look_a_pause(pushes: Pushes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushes_module, "SOONEST_S", 0.2)
    ends = threading.Event()

    def flood() -> None:
        number = 0
        while not ends.wait(0.002):
            number += 1
            body = str(number).encode()
            if delivery := pushes.begin(of_github(body, SECRET)):
                delivery.add(body)
                pushes.take(delivery)

    thread = threading.Thread(target=flood)
    thread.start()
    begun = time.monotonic()
    assert [pushes.wait(60) for _ in range(6)] == [True] * 6
    assert time.monotonic() - begun >= 5 * 0.2
    ends.set()
    thread.join()


def rested(watcher: Watcher, pushes: Pushes | None, seconds: float = 200, keep: Callable[[], None] = lambda: None,
           ) -> float:
    begun = time.monotonic()
    watch._rest(watcher, pushes, keep, seconds)
    return time.monotonic() - begun


def test_a_push_ends_the_rest_and_the_next_one_goes_on(watcher: Watcher, pushes: Pushes) -> None:
    delivery = pushes.begin(of_gitlab(BODY, SECRET))
    pushes.take(delivery)
    assert rested(watcher, pushes) < 100
    assert rested(watcher, pushes, 0.3) >= 0.3


@pytest.mark.parametrize("with_pushes", [True, False])
def test_a_rest_ends_when_a_replica_that_starts_goes_on(
    watcher: Watcher, cluster: ClusterStandIn, pushes: Pushes, monkeypatch: pytest.MonkeyPatch, with_pushes: bool
) -> None:
    monkeypatch.setattr(watch, "PULSE_S", 0.05)
    watcher.look()
    cluster.add_replica("org/m", 0, "node-a", state="PENDING_CREATION")
    assert watcher.starting() is None, "nothing that the watch has begun starts"
    assert watcher.seen
    watcher.starts.begin("1" * 40, watcher.seen, [ReplicaOutcome(model="org/m", replica_id=0, outcome="starting")])
    assert watcher.starting()
    went_on = rested(watcher, pushes if with_pushes else None, keep=lambda: cluster.actors[0].update(state="ALIVE"))
    assert went_on < 100, "it was seen to start when the rest began, and to be up at a pulse"


def test_a_cluster_that_does_not_answer_leaves_the_rest_as_it_is(watcher: Watcher, cluster: ClusterStandIn) -> None:
    watcher.look()
    assert watcher.seen
    watcher.starts.begin("1" * 40, watcher.seen, [ReplicaOutcome(model="org/m", replica_id=0, outcome="starting")])
    cluster.refusals["GET", "/api/v0/actors"] = [(500, "no")] * 99
    assert watcher.starting() is None
    assert rested(watcher, None, 0.2) >= 0.2


@contextmanager
def watching(cluster: ClusterStandIn, folder: Path, *flags: str) -> Iterator[tuple[str, Callable[[str], bool]]]:
    """Run a watch of a repository; yields the address of its server, and a test for what it has printed."""
    (folder / "secret").write_text(f"{SECRET}\n")
    port, log = free_port(), folder / "log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "fleetctl", "watch", "--repo", str(folder / "repo.git"), "--path", "fleet.yaml",
             "--interval", "10m", "--report-only", "--clone", str(folder / "clone"), "--address", cluster.url,
             "--listen", f"127.0.0.1:{port}", "--push-secret-file", str(folder / "secret"), *flags],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def printed(text: str, seconds: float = 120) -> bool:
        until = time.monotonic() + seconds
        while text not in log.read_text():
            if time.monotonic() > until or process.poll() is not None:
                pytest.fail(f"not printed: {text}\n{log.read_text()}")
            time.sleep(0.02)
        return True

    try:
        yield f"http://127.0.0.1:{port}", printed
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(300)


def git(folder: Path, *arguments: str) -> str:
    named = ["-c", "user.name=a", "-c", "user.email=a@b"]
    return subprocess.run(["git", *named, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


def commit(folder: Path, replicas: int) -> str:
    (folder / "work/fleet.yaml").write_text((FLEET % "lab").replace("replicas: 3", f"replicas: {replicas}"))
    git(folder / "work", "add", "-A")
    git(folder / "work", "commit", "--quiet", "-m", "change")
    git(folder / "work", "push", "--quiet", "origin", "HEAD:main")
    return git(folder / "work", "rev-parse", "HEAD").strip()


def test_a_commit_is_in_force_once_its_webhook_has_come(cluster: ClusterStandIn, tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--bare", "--initial-branch=main", "repo.git")
    git(tmp_path, "clone", "--quiet", "repo.git", "work")
    first = commit(tmp_path, 1)
    with watching(cluster, tmp_path) as (url, printed):
        assert printed("/push")
        assert printed(f"revision {first[:10]} is in force")
        second = commit(tmp_path, 2)
        assert post(url, of_github(BODY, SECRET)) == 202
        assert printed(f"revision {second[:10]} is in force")
