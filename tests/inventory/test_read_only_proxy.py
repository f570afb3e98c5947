"""The nginx configuration of docs/inventory.md, in a real nginx before a stand-in dashboard: it passes reads only."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from authority import Authority
from cluster_stand_in import ClusterStandIn, event, serve, summary
from external_programs import eventually, needed, running
from in_process import run_here

from fleetctl.demo.lifecycle import free_port
from fleetctl.inventory.engine_log import log_name

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "inventory.md").read_text()
READER, CLUSTERS = "5eade4" * 10, "the-token-of-the-cluster"
RUN = "fleetctl-apply-8dd5457ba23d"
LOG = "fleetctl-org-one-76b24a82-1-main-0-0.log"
NODE = "ab" * 28

READ = {
    "/api/version": ["/api/version"],
    "/nodes": ["/nodes?view=summary&nocache=1"],
    "/api/v0/{what}": [
        "/api/v0/nodes?limit=10000&detail=true",
        "/api/v0/placement_groups?limit=10000&detail=true&filter_keys=state&filter_predicates=%21%3D&filter_values=X",
        "/api/v0/actors?limit=10000&detail=true&filter_keys=state&filter_predicates=%3D&filter_values=ALIVE"],
    "/logical/actors": ["/logical/actors?nocache=1", f"/logical/actors?nocache=1&ids={'%2C'.join(['ab' * 16] * 200)}"],
    "/api/jobs/": ["/api/jobs/", f"/api/jobs/{RUN}", f"/api/jobs/{RUN}/logs", "/api/jobs/fleetctl.records.reload.lab",
                   "/api/jobs/2c010000"],
    "/api/cluster_status": ["/api/cluster_status", "/api/cluster_status?format=1"],
    "/events": ["/events?job_id=global"],
    "/api/v0/logs": [f"/api/v0/logs?node_id={NODE}&glob=fleetctl-cold-{NODE}-%2A"],
    "/api/v0/logs/file": [f"/api/v0/logs/file?node_id={NODE}&filename={LOG}&lines=100&format=text"],
}
"""Every path of the dashboard in the source that only reads, with requests as the client sends them."""
OTHERS = {
    "/api/packages/gcs/{package.name}": "an apply's plan, with the values of its environment",
    "/api/jobs/{submission_id}/stop": "a change",
    "/api/jobs/{job.submission_id}": "a DELETE",
    "/api/v1/query": "Prometheus, not the dashboard",
}
"""The other paths in the source, none of which may pass."""


@dataclass
class Proxy:
    """The proxy of the page: its port, and the authority to trust."""

    port: int
    authority: Path

    @property
    def environ(self) -> dict[str, str]:
        return {"FLEETCTL_ADDRESS": f"https://127.0.0.1:{self.port}", "SSL_CERT_FILE": str(self.authority),
                "RAY_AUTH_TOKEN": READER, "HOME": "/nonexistent", "PATH": "/usr/bin:/bin"}

    def send(self, text: str) -> list[int]:
        """Send bytes as they are, and return the status of each answer until the proxy closes."""
        context = ssl.create_default_context(cafile=str(self.authority))
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as plain, \
                context.wrap_socket(plain, server_hostname="127.0.0.1") as connection:
            connection.sendall(text.encode())
            received = b""
            while part := connection.recv(65536):
                received += part
        return [int(code) for code in re.findall(rb"^HTTP/1\.[01] (\d{3})", received, re.MULTILINE)]

    def ask(self, method: str, target: str, body: str = "", token: str = READER, **headers: str) -> int:
        """Return the status of one request."""
        sent = {"Host": "proxy", "Connection": "close", **({"Authorization": f"Bearer {token}"} if token else {}),
                **({"Content-Length": str(len(body))} if body else {}),
                **{name.replace("_", "-"): value for name, value in headers.items()}}
        lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        return self.send(f"{method} {target} HTTP/1.1\r\n{lines}\r\n{body}")[0]


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterStandIn]:
    """A cluster whose replicas make the client read everything that it ever reads for a plan."""
    stand_in = ClusterStandIn()
    ids = [stand_in.add_node(name) for name in ("node-a", "node-b")]
    stand_in.add_replica("org/one", 0, ids[0], gpus=10_000)
    stand_in.add_replica("org/one", 1, ids[1], gpus=10_000, state="RESTARTING", restarts=1, up_ms=(1, 2))
    stand_in.log_files[ids[1], log_name("fleet", "org/one", 1, "main", 0, 0)] = "ready\n"
    stand_in.add_replica("org/one", 2, ids[1], gpus=10_000, state="PENDING_CREATION")
    starting = stand_in.jobs.pop(next(name for name in stand_in.jobs if name.startswith("earlier-")))
    starting.body["submission_id"] = RUN
    stand_in.jobs[RUN] = starting
    log = event(0, "version", "fleetctl agent", version="1.0") + summary(1)
    stand_in.add_job("fleetctl-apply-e61455000000", ("SUCCEEDED", log), verb="apply", fleet="lab", create="1").step()
    stand_in.data_at["/api/cluster_status"] = {}
    stand_in.data_at["/events"] = {"events": []}
    with serve(stand_in):
        yield stand_in


@pytest.fixture(scope="module")
def proxy(cluster: ClusterStandIn, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """A running nginx with the configuration of the page; only names of files, hosts and ports are replaced."""
    program = needed("FLEETCTL_NGINX", "nginx", "install Debian's package `nginx`")
    folder = tmp_path_factory.mktemp("nginx")
    authority = Authority(folder)
    pair = authority.sign("fleet-read-only")
    (folder / "fleet-readers").write_text(f'"~^Bearer {READER}$" review;\n')
    (folder / "fleet-cluster-token").write_text(f'proxy_set_header Authorization "Bearer {CLUSTERS}";\n')
    port = free_port()
    [block] = re.findall(r"^```nginx\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    for printed, here in (("/etc/nginx/", f"{folder}/"), ("ray-head:8265", cluster.url.removeprefix("http://")),
                          ("listen 8443 ssl", f"listen 127.0.0.1:{port} ssl")):
        assert printed in block
        block = block.replace(printed, here)
    assert pair.certificate == folder / "fleet-read-only.pem"
    temporary = " ".join(f"{kind}_temp_path {folder}/{kind};" for kind in (
        "client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; error_log stderr warn; events {{}}\n"
        f"http {{ access_log off; {temporary}\n{block} }}\n")
    with running(folder / "log", program, "-p", folder, "-e", "stderr", "-c", folder / "nginx.conf"):
        made = Proxy(port, authority.certificate)
        eventually(lambda: made.ask("GET", "/api/version") == 200, "nginx passes a read", folder / "log")
        yield made


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    file = tmp_path / "fleet.yaml"
    file.write_text("""\
apiVersion: fleetctl/v1
kind: Fleet
metadata: {name: lab}
spec:
  models:
  - {key: org/one, replicas: 4, workers: [{name: main, members: [{resources: {gpus: 1}, engine: {command: [a]}}]}]}
""")
    return file


def test_the_table_has_every_path_of_the_dashboard_in_the_source() -> None:
    found = set()
    for path in (ROOT / "fleetctl").rglob("*.py"):
        if path.relative_to(ROOT / "fleetctl").parts[0] not in ("agent", "demo", "forge", "importers"):
            text = path.read_text().replace("{JOBS_PATH}", "/api/jobs/")
            found |= set(re.findall(r'"(/(?:api|nodes|logical|events)\b[^" ?]*)"', text))
    asked = {name.partition("{submission_id}")[0] for name in found - OTHERS.keys()}
    examples = {target.partition("?")[0] for targets in READ.values() for target in targets}
    assert READ.keys() <= asked <= READ.keys() | examples
    assert found > OTHERS.keys()


@pytest.mark.parametrize("target", [target for targets in READ.values() for target in targets])
def test_every_read_of_the_client_passes(proxy: Proxy, cluster: ClusterStandIn, target: str) -> None:
    before = len(cluster.requests)
    proxy.ask("GET", target)
    assert cluster.requests[before:] == [("GET", target.partition("?")[0])]


@pytest.mark.parametrize("words", [
    ("plan",), ("status",), ("inventory",), ("doctor",), ("history",), ("history", "show", RUN),
    ("ci", "review", "--forge", "none"), ("ci", "drift", "--forge", "none")], ids=" ".join)
def test_commands_that_read_say_the_same_through_the_proxy(
    proxy: Proxy, cluster: ClusterStandIn, fleet: Path, words: tuple[str, ...]
) -> None:
    outputs, requests = [], []
    for address in (proxy.environ["FLEETCTL_ADDRESS"], cluster.url):
        before = len(cluster.requests)
        done = run_here(*words, "-f", fleet, env={**proxy.environ, "FLEETCTL_ADDRESS": address}, folder=fleet.parent)
        assert done.returncode in (0, 2, 3), done.stderr
        outputs.append(_comparable(done.stdout))
        requests.append(set(cluster.requests[before:]))
    assert outputs[0] == outputs[1]
    assert requests[0] == requests[1] != set()


def _comparable(text: str) -> str:
    """The text without what differs from call to call, or with the address."""
    return re.sub(r"https?://127\.0\.0\.1:\d+|\b[0-9a-f]{12,64}\b|\d{4}-\d\d-\d\dT[\d:.]+Z|\s+", " ", text)


def test_an_apply_is_refused_and_the_cluster_is_not_changed(proxy: Proxy, cluster: ClusterStandIn, fleet: Path) -> None:
    jobs, packages = len(cluster.jobs), len(cluster.packages)
    for words in (("apply", "--yes"), ("evict", "org/one/0", "--yes"), ("cordon", "node-a")):
        files = ("-f", fleet) if words[0] == "apply" else ()
        done = run_here(*words, *files, env=proxy.environ, folder=fleet.parent)
        assert done.returncode == 1
        assert "GET-only proxy" in done.stderr
    assert (len(cluster.jobs), len(cluster.packages), cluster.writes()) == (jobs, packages, [])


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "get", "PROPFIND"])
@pytest.mark.parametrize("target", ["/api/jobs/", f"/api/jobs/{RUN}/stop", f"/api/jobs/{RUN}", "/api/version"])
def test_no_other_method_passes(proxy: Proxy, cluster: ClusterStandIn, method: str, target: str) -> None:
    before = len(cluster.requests)
    assert proxy.ask(method, target) in (400, 405)
    assert proxy.ask(method, target, body='{"entrypoint": "id"}', Content_Type="application/json") in (400, 405, 413)
    assert cluster.requests[before:] == []


@pytest.mark.parametrize("target", [
    f"/api/jobs/{RUN}/stop", "/api/packages/gcs/_ray_pkg_00.zip", f"/api/packages/gcs/{RUN}-request",
    "/api/jobs/raysubmit_1", "/api/jobs/raysubmit_1/logs", f"/api/jobs/{RUN}/logs/tail", "/api/serve/applications/",
    "/api/jobs/fleetctl-apply-1/../../packages/gcs/x", "/api/jobs/fleetctl-a%2f..%2f..%2fpackages",
    "/api/version/../jobs/", "//api/version", "/api/version?x=1", "/api/version%0a", "/api/version#x", "/API/version",
    "/", "/index.html", "/static/js/../../etc/passwd", "/nodes", "/nodes?view=details", f"/nodes/{NODE}",
    "/logical/actors", "/log_proxy?url=a", "/api/actors/kill?actor_id=1&force_kill=true", "/worker/traceback?pid=1",
    "/worker/cpu_profile?pid=1", "/task/traceback", "/memory_profile", "/api/v0/tasks?limit=1",
    "/api/v0/runtime_envs?limit=1", f"/api/v0/logs?node_id={NODE}&glob=*",
    f"/api/v0/logs?node_id={NODE}&glob=fleetctl-%2F..%2F*",
    f"/api/v0/logs/file?node_id={NODE}&filename=gcs_server.out&lines=9&format=text",
    f"/api/v0/logs/file?node_id={NODE}&filename=fleetctl-..%2F..%2Fetc%2Fpasswd&lines=9&format=text",
    f"/api/v0/logs/file?node_id={NODE}&filename={LOG}&lines=9&format=text&filename=gcs_server.out",
    f"/api/v0/logs/file?node_id={NODE}&filename={LOG}&lines=9&format=text&actor_id=1",
    f"/api/v0/logs/stream?node_id={NODE}&filename={LOG}&lines=9&format=text",
])
def test_no_other_path_passes(proxy: Proxy, cluster: ClusterStandIn, target: str) -> None:
    before = len(cluster.requests)
    assert proxy.ask("GET", target) in (400, 404)
    assert cluster.requests[before:] == []


@pytest.mark.parametrize("headers", [
    {"X_HTTP_Method_Override": "POST"}, {"X_Method_Override": "DELETE"}, {"X_Original_URL": "/api/jobs/"},
    {"X_Rewrite_URL": "/api/jobs/"}, {"Cookie": "ray-authentication-token=x"}, {"X_Ray_Authorization": "Bearer x"},
    {"X_Forwarded_For": "127.0.0.1"}, {"Origin": "https://example.com"}, {"Range": "bytes=0-1"},
])
def test_no_header_of_a_reader_reaches_the_dashboard(
    proxy: Proxy, cluster: ClusterStandIn, headers: Mapping[str, str]
) -> None:
    before = len(cluster.requests)
    assert proxy.ask("GET", "/api/version", **headers) == 200
    assert cluster.requests[before:] == [("GET", "/api/version")]
    sent = cluster.headers[-1]
    assert sent.keys() == {"host", "accept-encoding", "user-agent", "authorization"}
    assert (sent["authorization"], sent["user-agent"][:7]) == (f"Bearer {CLUSTERS}", "Mozilla")
    assert READER not in str(sent)


@pytest.mark.parametrize("token", [
    "", "x", READER[:-1], READER + "0", READER.upper(), CLUSTERS, f"{READER} ", f"x{READER}", f"{READER}, Bearer x"])
def test_only_a_readers_token_opens_it(proxy: Proxy, cluster: ClusterStandIn, token: str) -> None:
    before = len(cluster.requests)
    if token.strip() != READER:
        assert proxy.ask("GET", "/api/version", token=token) == 403
        assert cluster.requests[before:] == []
    assert proxy.ask("GET", "/api/version", token="", X_Ray_Authorization=f"Bearer {READER}") == 403


def test_no_web_socket_is_opened(proxy: Proxy, cluster: ClusterStandIn) -> None:
    before = len(cluster.requests)
    for target in ("/api/version", f"/api/jobs/{RUN}/logs", f"/api/jobs/{RUN}/logs/tail"):
        assert proxy.ask("GET", target, Connection="Upgrade", Upgrade="websocket", Sec_WebSocket_Version="13",
                         Sec_WebSocket_Key="eA==") == 400
    assert cluster.requests[before:] == []


INNER = f"POST /api/jobs/ HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {READER}\r\nContent-Length: 2\r\n\r\n{{}}"
HEAD = f"GET /api/version HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {READER}\r\n"


@pytest.mark.parametrize("text", [
    f"{HEAD}\r\n{INNER}",
    f"{HEAD}Content-Length: {len(INNER)}\r\n\r\n{INNER}",
    f"{HEAD}Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n{INNER}",
    f"{HEAD}Transfer-Encoding: chunked\r\n\r\n{len(INNER):x}\r\n{INNER}\r\n0\r\n\r\n",
    f"{HEAD}Transfer-Encoding : chunked\r\nContent-Length: 4\r\n\r\n1\r\nZ\r\n0\r\n\r\n{INNER}",
    f"{HEAD}Connection: keep-alive, Content-Length\r\n\r\n{INNER}",
    HEAD.replace("/api/version", "http://elsewhere.example/api/version") + "\r\n" + INNER,
    HEAD.replace("/api/version ", "/api/version HTTP/1.1\r\nX: ") + "\r\n" + INNER,
], ids=range(8))
def test_no_second_request_is_smuggled_in_the_first(proxy: Proxy, cluster: ClusterStandIn, text: str) -> None:
    before = len(cluster.requests)
    closing = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    codes = proxy.send(text + closing)
    assert 200 not in codes[1:]
    assert set(cluster.requests[before:]) <= {("GET", "/api/version")}
