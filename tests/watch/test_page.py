"""The status page of a watch without scripts, and the stream that announces changes."""

from __future__ import annotations

import base64
import http.client
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from cluster_stand_in import ClusterStandIn, summary
from cluster_stand_in import event as event_line
from small_watcher import FLEET, advance, watcher_of

from fleetctl.cli.watch_server import MAX_LISTENERS, MAX_READERS, Served, serving
from fleetctl.documents.base import as_datetime
from fleetctl.documents.inventory import Failure
from fleetctl.watch.page import watch_page
from fleetctl.watch.watcher import Watcher

SECRET = "s3cr3t-in-the-environment"


@pytest.fixture
def watcher(cluster: ClusterStandIn, tmp_path: Path) -> Watcher:
    text = (FLEET % "lab").replace("command: [serve]", f"command: [serve], env: {{API_TOKEN: {SECRET}}}")
    return watcher_of(cluster, tmp_path / "fleet.yaml", text)


@contextmanager
def served(watcher: Watcher, token: str | None = None, *names: str) -> Iterator[Served]:
    with serving(watcher, "127.0.0.1:0", token, names) as found:
        assert found
        yield found


def fetch(served: Served, path: str, authorization: str = "", host: str = "") -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(served.url.removeprefix("http://"), timeout=300)
    given = {"Authorization": authorization, "Host": host}
    connection.request("GET", path, headers={name: value for name, value in given.items() if value})
    return connection.getresponse()


@pytest.mark.parametrize("listen", ["[::1]:0", "::1:0"])
def test_a_page_at_an_ipv6_address_has_a_url_that_can_be_opened(watcher: Watcher, listen: str) -> None:
    with serving(watcher, listen, None) as found:
        assert found
        assert found.url.startswith("http://[::1]:")
        with fetch(found, "/healthz") as answer:
            assert answer.status in {200, 503}


def text_of(html: str) -> str:
    main = re.sub(r"</?(?:span|wbr)\b[^>]*>", "", html.partition("<main")[2].partition("<script")[0])
    return " ".join(re.sub(r"<[^>]+>", " ", main).split())


def read_event(stream: http.client.HTTPResponse) -> list[str]:
    """Return the lines of the next event; the heartbeats between events are skipped."""
    lines: list[str] = []
    for line in map(bytes.decode, stream):
        if line == "\n" and lines:
            break
        if line != "\n" and not line.startswith(":"):
            lines.append(line.rstrip("\n"))
    return lines


def test_the_page_shows_running_and_missing_replicas_with_reasons(watcher: Watcher, cluster: ClusterStandIn) -> None:
    cluster.add_replica("org/m", 0, cluster.nodes[0]["node_id"])
    assert "There is no usable revision yet." in text_of(watch_page(watcher).html)
    log = event_line(0, "version", "fleetctl agent", version="1.0") + summary(1)
    cluster.add_job("fleetctl-apply-8dd5457ba23d", ("SUCCEEDED", log), verb="apply", fleet="lab", create="0").step()
    watcher.keeps_history = True
    advance(watcher)
    text = text_of(watch_page(watcher).html)
    for words in ("Fleet lab", "Not everything runs", "2 blocked", "INSUFFICIENT_GPU", "org/m/0", "node-a",
                  "Placement map", "Runs", "8dd5457ba23d", "good: ", "last good revision", "last look"):
        assert words in text, text
    assert SECRET not in watch_page(watcher).html
    assert "never constructed" not in text, "a column without text is omitted"


def test_a_broken_revision_is_shown_beside_the_one_that_stays_in_force(watcher: Watcher, tmp_path: Path) -> None:
    advance(watcher)
    good = watcher.state.good or ""
    (tmp_path / "fleet.yaml").write_text("kind: nonsense")
    advance(watcher)
    text = text_of(watch_page(watcher).html)
    assert "newest revision" in text
    assert good[:10] in text
    assert "fleet.yaml:1:1" in text


def test_a_look_without_changes_keeps_the_digest_of_the_page(watcher: Watcher, cluster: ClusterStandIn) -> None:
    again = int(as_datetime("2026-03-04T11:58:00Z").timestamp() * 1000)
    cluster.add_replica("org/m", 0, cluster.nodes[0]["node_id"], up_ms=(again - 1000, again), restarts=1)
    advance(watcher)
    before = watch_page(watcher)
    assert "2026-03-04T11:58:00Z" in text_of(before.html)
    watcher.invocation = replace(watcher.invocation, now=lambda: "2026-03-04T12:01:00Z")
    advance(watcher)
    watcher.looked_at += 60
    assert watch_page(watcher).digest == before.digest
    assert watch_page(watcher).html != before.html


def test_the_stream_reports_each_look_and_ends_with_a_change(watcher: Watcher, cluster: ClusterStandIn) -> None:
    advance(watcher)
    with served(watcher) as page:
        stream = fetch(page, f"/events?have={watch_page(watcher).digest}")
        assert stream.headers["Content-Type"] == "text/event-stream"
        assert read_event(stream) == ["event: looked", "data: 1970-01-01T00:00:00Z"]
        page.turned()
        assert read_event(stream)[0] == "event: looked"
        cluster.add_node("b")
        advance(watcher)
        page.turned()
        assert read_event(stream) == ["event: changed", "data:"]
        assert stream.read() == b""
        assert "org/m/2" in text_of(fetch(page, "/").read().decode())


def test_the_number_of_listeners_is_limited(watcher: Watcher) -> None:
    advance(watcher)
    have = watch_page(watcher).digest
    with served(watcher) as page:
        streams = [fetch(page, f"/events?have={have}") for _ in range(MAX_LISTENERS)]
        assert [read_event(one)[0] for one in streams] == ["event: looked"] * MAX_LISTENERS
        assert fetch(page, "/events").status == 503
        assert fetch(page, "/").status == 200


def test_strangers_keep_nobody_from_page_probes_and_stream(watcher: Watcher) -> None:
    advance(watcher)
    with served(watcher) as page, ExitStack() as opened:
        stream = fetch(page, f"/events?have={watch_page(watcher).digest}")
        assert read_event(stream)[0] == "event: looked"
        host, port = page.url.removeprefix("http://").split(":")
        for _ in range(300):
            opened.enter_context(socket.create_connection((host, int(port)), 30)).sendall(b"G")
        for path in ("/", "/healthz", "/metrics"):
            assert fetch(page, path).status == 200
        page.turned()
        assert read_event(stream)[0] == "event: looked", "an open page stays open"


def test_slow_readers_leave_room_for_probes(watcher: Watcher) -> None:
    with served(watcher) as page:
        for _ in range(MAX_READERS):
            page.readers.acquire()
        assert fetch(page, "/").status == 503
        assert fetch(page, "/healthz").status == 200
        page.readers.release()
        for _ in range(3):
            assert fetch(page, "/").status == 200
            assert page.readers.acquire(timeout=300), "its reader is free again once the page was sent"
            page.readers.release()


def test_only_known_names_are_served_and_the_refusal_names_the_flag(watcher: Watcher) -> None:
    with served(watcher, None, "fleet.example.org") as page:
        for path in ("/", "/events", "/metrics", "/other"):
            refused = fetch(page, path, host="evil.example")
            assert refused.status == 421
            text = refused.read().decode()
            assert "evil.example" in text
            assert "--listen-name NAME" in text
        for host in ("fleet.example.org", "fleet.example.org:443", "localhost", "10.0.0.7:9464"):
            assert fetch(page, "/", host=host).status == 200
        assert fetch(page, "/healthz", host="evil.example").status == 200


def test_page_and_stream_require_the_token_and_probes_do_not(watcher: Watcher) -> None:
    basic = base64.b64encode(b"anyone:tok:en").decode()
    with served(watcher, "tok:en") as page:
        for path in ("/", "/events", "/metrics", "/other"):
            refused = fetch(page, path, "Bearer guess")
            assert (refused.status, refused.headers["WWW-Authenticate"]) == (401, 'Basic realm="fleetctl"')
            assert fetch(page, path, "Basic nonsense").status == 401
            assert fetch(page, path).status == 401
        assert fetch(page, "/", f"Basic {basic}").status == fetch(page, "/", "Bearer tok:en").status == 200
        assert fetch(page, "/healthz").status == 200


def test_a_page_may_contact_only_its_own_server(watcher: Watcher) -> None:
    with served(watcher) as page:
        answer = fetch(page, "/")
        html = answer.read().decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', html)
    assert policy
    assert "default-src &#x27;none&#x27;" in policy[1]
    assert "connect-src &#x27;self&#x27;" in policy[1]
    assert (answer.headers["Cache-Control"], answer.headers["X-Frame-Options"]) == ("no-store", "DENY")


def test_failures_of_another_fleet_are_not_shown(watcher: Watcher) -> None:
    advance(watcher)
    assert watcher.seen
    at = watcher.seen.observed_at
    watcher.seen = watcher.seen.model_copy(update={"failures": [
        Failure(model=f"org/{fleet}-breaks", replica_id=0, actor_id=fleet, fleet=fleet, at=at, code="ENGINE_EXITED")
        for fleet in ("lab", "other")]})
    text = text_of(watch_page(watcher).html)
    assert "org/lab-breaks" in text
    assert "org/other-breaks" not in text


def test_the_replicas_of_a_page_name_their_variant(cluster: ClusterStandIn, tmp_path: Path) -> None:
    workers = "workers: [{name: main, members: [{resources: {gpus: 1}, engine: {command: [serve, %s]}}]}]"
    text = (FLEET % "lab").partition("    workers:")[0] + f"""\
    variants:
    - {{name: fp8, {workers % "fp8"}}}
    - {{name: bf16, {workers % "bf16"}}}
"""
    cluster.add_replica("org/m", 0, cluster.nodes[0]["node_id"], gpus=10_000, variant="bf16")
    watcher = watcher_of(cluster, tmp_path / "fleet.yaml", text)
    advance(watcher)
    assert "org/m/0 bf16 ready" in text_of(watch_page(watcher).html)
