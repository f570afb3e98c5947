"""Token, headers and certificate go to an address from a flag or a variable, never to one that only a file names."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster_stand_in import ClusterStandIn

SECRET = "t0ken-of-prod"


@pytest.fixture
def remote(cli, cluster: ClusterStandIn, fits: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The cluster under an address that is not loopback and that only the fleet file names."""
    address = cluster.url.replace("127.0.0.1", "0.0.0.0")
    fits.write_text(fits.read_text().replace("spec:\n", f"spec:\n  cluster: {{address: '{address}'}}\n"))
    monkeypatch.delenv("FLEETCTL_ADDRESS")
    monkeypatch.setenv("RAY_AUTH_TOKEN", SECRET)
    monkeypatch.setenv("FLEETCTL_HEADERS", '{"X-Api-Key": "k3y"}')
    return address


def sent(cluster: ClusterStandIn, name: str) -> set[str | None]:
    return {headers.get(name) for headers in cluster.headers}


COMMANDS = {
    "plan": ("plan", "-f", "{}"), "apply": ("apply", "-f", "{}", "--yes"), "status": ("status", "-f", "{}"),
    "inventory": ("inventory", "-f", "{}"), "history": ("history", "-f", "{}"), "map": ("map", "-f", "{}"),
    "logs": ("logs", "--file", "{}", "org/one/0"), "evict": ("evict", "-f", "{}", "org/one/0", "--yes"),
    "import": ("import", "-f", "{}"), "capacity": ("capacity", "-f", "{}"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_an_address_only_in_the_file_gets_no_token(
    cli, cluster: ClusterStandIn, fits: Path, remote: str, command: str
) -> None:
    cli(*(word.format(fits) for word in COMMANDS[command]))
    assert cluster.requests
    assert sent(cluster, "authorization") == {None}
    assert sent(cluster, "x-api-key") == {None}


@pytest.mark.parametrize("way", ["flag", "variable", "loopback"])
def test_a_given_or_local_address_gets_token_and_headers(
    cli, cluster: ClusterStandIn, fits: Path, remote: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ["--address", remote] if way == "flag" else []
    if way == "variable":
        monkeypatch.setenv("FLEETCTL_ADDRESS", remote)
    if way == "loopback":
        fits.write_text(fits.read_text().replace(remote, cluster.url))
    assert cli("plan", "-f", fits, *flags).code == 0
    assert sent(cluster, "authorization") == {f"Bearer {SECRET}"}
    assert sent(cluster, "x-api-key") == {"k3y"}


@pytest.mark.parametrize("code", [401, 403])
def test_the_refusal_says_why_no_token_was_sent_and_what_to_do(
    cli, cluster: ClusterStandIn, fits: Path, remote: str, code: int
) -> None:
    cluster.refusals["GET", "/"] = [(code, "")] * 20
    result = cli("plan", "-f", fits)
    assert result.code == 1
    assert "were not sent: only a file names this address" in result.err
    assert "--address URL or FLEETCTL_ADDRESS" in result.err
    assert SECRET not in result.err


def test_without_anything_to_send_the_refusal_asks_for_a_token(
    cli, cluster: ClusterStandIn, fits: Path, remote: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_AUTH_TOKEN")
    monkeypatch.delenv("FLEETCTL_HEADERS")
    cluster.refusals["GET", "/"] = [(401, "")] * 20
    assert "requires a token, and there is none" in cli("plan", "-f", fits).err


@pytest.fixture
def saved(cli, fits: Path, remote: str, tmp_path: Path) -> Path:
    """A plan that names the cluster, which no other file does."""
    path = tmp_path / "lab.fleetplan"
    assert cli("plan", "-f", fits, "--out", path).code == 0
    fits.write_text(fits.read_text().replace(f"  cluster: {{address: '{remote}'}}\n", ""))
    return path


def test_a_saved_plan_does_not_decide_where_the_token_is_sent(cli, cluster: ClusterStandIn, saved: Path) -> None:
    assert cli("show", saved, "--check").code == 0
    assert cli("apply", saved, "--yes").code == 0
    assert sent(cluster, "authorization") == {None}


def test_making_a_new_plan_for_a_stale_one_sends_no_token_either(cli, cluster: ClusterStandIn, saved: Path) -> None:
    cluster.nodes[1]["state"] = "DEAD"
    cluster.add_node("node-c")
    assert "the plan as it would be made now" in cli("apply", saved, typed="y\n").err
    assert sent(cluster, "authorization") == {None}


HEADER, LOGIN = '{"X-K": "k3y"}', '{"Authorization": "k3y"}'
WARNING = "over plain http: others on the network can read it"


@pytest.mark.parametrize(("variables", "what"), [
    ({"RAY_AUTH_TOKEN": SECRET}, "the cluster's token"), ({"FLEETCTL_HEADERS": HEADER}, "the headers for a proxy"),
    ({"RAY_AUTH_TOKEN": SECRET, "FLEETCTL_HEADERS": HEADER}, "the cluster's token and the headers for a proxy"),
    ({"RAY_AUTH_TOKEN": SECRET, "FLEETCTL_HEADERS": LOGIN}, "the headers for a proxy"), ({}, ""),
])
def test_a_secret_over_plain_http_to_another_machine_is_warned_about_once_on_standard_error(
    cli, cluster: ClusterStandIn, fits: Path, remote: str, monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str], what: str,
) -> None:
    for name in ("RAY_AUTH_TOKEN", "FLEETCTL_HEADERS"):
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    result = cli("apply", "-f", fits, "--address", remote, "--yes", "--format", "jsonl")
    host = remote.removeprefix("http://")
    assert result.err.count(WARNING) == bool(what)
    assert (f"sending {what} to {host} {WARNING}" in result.err) is bool(what)
    assert ("FLEETCTL_PLAIN_HTTP" in result.err) is bool(what)
    assert "plain http" not in result.out
    assert not {SECRET, "k3y"} & set(result.err.split())


@pytest.mark.parametrize("way", ["this machine", "expected host", "expected network", "only in the file"])
def test_no_warning_without_a_risk_or_where_it_is_accepted(
    cli, cluster: ClusterStandIn, fits: Path, remote: str, monkeypatch: pytest.MonkeyPatch, way: str,
) -> None:
    expected = {"expected host": f"other, {remote.removeprefix('http://')}", "expected network": "0.0.0.0/8"}
    monkeypatch.setenv("FLEETCTL_PLAIN_HTTP", expected.get(way, ""))
    addresses = {"this machine": ["--address", cluster.url], "only in the file": []}
    result = cli("plan", "-f", fits, *addresses.get(way, ["--address", remote]))
    assert result.code == 0
    assert WARNING not in result.err
