"""Contexts: which cluster a command uses, with which namespace and which secrets."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from cluster_stand_in import ClusterStandIn

from fleetctl.cli.context_option import complete_contexts
from fleetctl.cli.process import this_invocation
from fleetctl.documents.fleet import Cluster
from fleetctl.errors import FleetctlError, InventoryError
from fleetctl.workflow.contexts import resolve_namespace
from fleetctl.workflow.dashboard import open_dashboard
from fleetctl.workflow.invocation import Invocation, Where

SECRET = "t0ken-of-prod"
CONFIG = """\
# my clusters
current: near
contexts:
  near: {address: "http://near:8265", namespace: near-space}  # the lab's
  far: {address: "http://far:8265", namespace: far-space, token: {env: FAR_TOKEN}}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / ".config" / "fleetctl" / "config.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(CONFIG)
    return path


def invocation(tmp_path: Path, environ: dict[str, str], context: str | None = None) -> Invocation:
    return replace(this_invocation(), environ=environ, home=tmp_path, context=context, say=lambda *_: None)


FILE = {"address": "http://file:8265", "namespace": "file-space"}


@pytest.mark.parametrize(("flag", "environ", "context", "cluster", "expected"), [
    ("http://flag:1", {"FLEETCTL_ADDRESS": "http://env:1"}, "far", FILE, ("http://flag:1", "file-space")),
    (None, {"FLEETCTL_ADDRESS": "http://env:1"}, "far", FILE, ("http://env:1", "file-space")),
    (None, {"FLEETCTL_CONTEXT": "near"}, "far", FILE, ("http://far:8265", "far-space")),
    (None, {"FLEETCTL_CONTEXT": "far"}, None, FILE, ("http://far:8265", "far-space")),
    (None, {"FLEETCTL_CONTEXT": "far", "FLEETCTL_NAMESPACE": "env"}, None, FILE, ("http://far:8265", "env")),
    (None, {}, None, FILE, ("http://file:8265", "file-space")),
    (None, {}, None, {}, ("http://near:8265", "near-space")),
    (None, {}, None, {"namespace": "file-space"}, ("http://near:8265", "file-space")),
    (None, {}, None, {"address": "http://file:8265"}, ("http://file:8265", "fleet")),
])
def test_the_first_of_flag_environment_named_context_file_and_current_context_counts(
    tmp_path: Path, config: Path, flag: str | None, environ: dict[str, str], context: str | None,
    cluster: dict[str, str], expected: tuple[str, str],
) -> None:
    run, written = invocation(tmp_path, {**environ, "FAR_TOKEN": SECRET}, context), Cluster.model_validate(cluster)
    with open_dashboard(run, flag, written.address) as client:
        assert (client.base_url, resolve_namespace(run, Where(None, flag), written)) == expected


def test_the_namespace_flag_overrides_the_environment() -> None:
    run = replace(this_invocation(), environ={"FLEETCTL_NAMESPACE": "env"})
    assert resolve_namespace(run, Where(None, None, "flag"), Cluster()) == "flag"


@pytest.fixture
def remote(cli, cluster: ClusterStandIn, config: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The cluster under an address that is not loopback, named by the context `prod` with all its secrets."""
    address = cluster.url.replace("127.0.0.1", "0.0.0.0")
    monkeypatch.delenv("FLEETCTL_ADDRESS")
    monkeypatch.setenv("PROD_KEY", "k3y")
    config.write_text(f"current: prod\ncontexts: {{prod: {{address: '{address}', token: {{command: [echo, {SECRET}]}},"
                      " headers: {X-Api-Key: {env: PROD_KEY}}}, other: {address: 'http://other:1'}}\n")
    return address


def sent(cluster: ClusterStandIn, name: str) -> set[str | None]:
    return {headers.get(name) for headers in cluster.headers}


@pytest.mark.parametrize("way", ["current", "before", "after", "history show", "variable", "same address in the file"])
def test_a_context_gets_its_own_secrets(
    cli, cluster: ClusterStandIn, remote: str, fits: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "another cluster's")
    words = ["plan", "-f", str(fits)]
    if way == "variable":
        monkeypatch.setenv("FLEETCTL_CONTEXT", "prod")
    if way == "same address in the file":
        fits.write_text(fits.read_text().replace("spec:\n", f"spec:\n  cluster: {{address: '{remote}'}}\n"))
    words = {"before": ["--context", "prod", *words], "after": [*words, "--context", "prod"],
             "history show": ["history", "show", "latest", "--context", "prod"]}.get(way, words)
    cli(*words)
    assert cluster.requests
    assert sent(cluster, "authorization") == {f"Bearer {SECRET}"}
    assert sent(cluster, "x-api-key") == {"k3y"}


@pytest.mark.parametrize("way", ["flag", "variable", "file"])
def test_another_address_never_gets_the_secrets_of_a_context(
    cli, cluster: ClusterStandIn, remote: str, fits: Path, config: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    config.write_text(config.read_text().replace(remote, "http://prod:8265"))
    flags = ["--address", remote] if way == "flag" else []
    if way == "variable":
        monkeypatch.setenv("FLEETCTL_ADDRESS", remote)
    if way == "file":
        fits.write_text(fits.read_text().replace("spec:\n", f"spec:\n  cluster: {{address: '{remote}'}}\n"))
    assert cli("plan", "-f", fits, *flags).code == 0
    assert sent(cluster, "authorization") == sent(cluster, "x-api-key") == {None}


def test_a_named_context_that_is_not_used_is_reported(cli, remote: str, cluster: ClusterStandIn) -> None:
    result = cli("inventory", "--context", "other", "--address", cluster.url)
    assert result.code == 0
    assert "context other is not used: --address overrides it" in result.err
    assert "not used" not in cli("inventory", "--address", cluster.url).err  # the next run has no context


def test_a_ci_job_trusts_the_context_it_names_and_not_the_file_of_a_change(
    cli, cluster: ClusterStandIn, remote: str, fits: Path
) -> None:
    fits.write_text(fits.read_text().replace("spec:\n", "spec:\n  cluster: {address: 'http://of-a-stranger:1'}\n"))
    result = cli("ci", "review", "-f", fits, "--context", "prod", "--forge", "none")
    assert result.code == 0, result.err
    assert sent(cluster, "authorization") == {f"Bearer {SECRET}"}


@pytest.mark.parametrize(("source", "why"), [
    ("{env: NOT_SET}", "comes from the variable NOT_SET, which is not set"),
    (f"{{command: [sh, -c, 'echo {SECRET}; exit 3']}}", "from the command sh, but it ended with exit code 3"),
    (f"{{command: [printf, '{SECRET}\\n{SECRET}']}}", "it printed 2 lines instead of one"),
    ("{command: [no-such-program]}", "No such file"),
])
def test_a_missing_secret_is_an_error_that_shows_no_value(tmp_path: Path, config: Path, source: str, why: str) -> None:
    config.write_text(f"contexts: {{far: {{address: 'http://far:1', token: {source}}}}}")
    with pytest.raises(InventoryError, match="the token of context far") as caught:
        open_dashboard(invocation(tmp_path, {"PATH": "/usr/bin:/bin"}, "far"), None, None)
    assert why in caught.value.message
    assert SECRET not in caught.value.message


@pytest.mark.parametrize("text", [
    "contexts: [", "contexts: {a: {}}", f"contexts: {{a: {{address: b, token: {SECRET}}}}}", f"- {SECRET}",
    f"contexts: {{a: {{address: b, token: {{env: {SECRET}, command: [c]}}}}}}",
    f"contexts: {{a: {{address: b}}, a: {{address: c, token: {{env: {SECRET}}}}}}}",
])
def test_a_damaged_file_is_an_error_that_shows_no_value(cli, config: Path, text: str) -> None:
    config.write_text(text)
    for command in ("list", "show", "use"):
        result = cli("context", command, *(["a"] if command == "use" else []))
        assert (result.code, str(config) in result.err, SECRET in result.err) == (1, True, False)


def test_contexts_are_set_chosen_and_removed(cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    path = tmp_path / "xdg" / "fleetctl" / "config.yaml"
    assert cli("context", "show").code == 1
    assert cli("context", "set", "lab", "--address", "http://lab:8265/").code == 0  # the first one is current
    assert cli("context", "set", "prod", "--address", "auto", "--token-command", "vault read 'a b'",
               "--header", "X-Key=KEY", "--client-cert", "cert.pem", "--namespace", "n").code == 0
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text("# mine\n" + path.read_text())
    assert cli("context", "set", "prod", "--namespace", "").code == 0
    assert cli("context", "use", "prod").code == 0
    listed = json.loads(cli("context", "list", "--format", "json").out)
    assert listed["current"] == "prod"
    assert listed["contexts"]["lab"]["address"] == "http://lab:8265"
    prod = listed["contexts"]["prod"]
    assert prod["token"]["command"] == ["vault", "read", "a b"]
    assert (prod["namespace"], prod["clientCert"]) == (None, str(Path("cert.pem").absolute()))
    result = cli("context", "show")
    assert "prod (current)" in result.out
    assert "header X-Key from variable KEY" in result.out
    assert "FLEETCTL_ADDRESS is set and overrides" in result.err
    assert cli("context", "unset", "prod").code == 0
    assert path.read_text().startswith("# mine\n")
    assert [row.split()[:2] for row in cli("context", "list").out.splitlines()[1:]] == [["-", "lab"]]


TOP = "# mine\ncurrent: a # the usual one\ncontexts: # all of them\n"
A = "  # about a\n  a: {address: 'http://a'} # its end\n"
B = "  # about b\n\n  # more about b\n  b:\n    address: http://b # where\n    namespace: n # which\n    # after b\n"
TAIL = "# the end\n"


@pytest.mark.parametrize(("before", "command", "after"), [
    (TOP + A + B + TAIL, "unset a", "# mine\ncontexts: # all of them\n" + B + TAIL),
    (TOP + B + A + TAIL, "unset a", "# mine\ncontexts: # all of them\n" + B + TAIL),
    (TOP + A + B + TAIL, "unset b", TOP + A + "  # about b\n\n    # after b\n" + TAIL),
    (TOP + A, "unset a", "# mine\n"),
    (TOP + A + B + TAIL, "set b --namespace=", TOP + A + B.replace("    namespace: n # which\n", "") + TAIL),
    ("current: a\ncontexts: {a: {address: 'http://a'}} # x\n", "unset a", "contexts: {} # x\n"),
])
def test_removing_a_context_removes_its_own_comment_and_keeps_the_others(
        cli, config: Path, before: str, command: str, after: str) -> None:
    config.write_text(before)
    result = cli("context", *command.split())
    assert result.code == 0, result.err
    assert re.sub(" +# x", " # x", config.read_text()) == after


def test_an_empty_name_of_a_context_is_a_usage_error(cli, config: Path) -> None:
    before = config.read_text()
    result = cli("context", "set", "", "--address", "http://a")
    assert (result.code, "needs a name" in result.err) == (64, True)
    assert config.read_text() == before


def test_comments_are_kept_and_any_text_may_be_a_name(cli, config: Path) -> None:
    config.write_text("# mine\n")
    for name in ("on", "12:30", "plain"):
        assert cli("context", "set", name, "--address", "http://lab:8265").code == 0
    assert cli("context", "use", "on").code == 0
    assert config.read_text().startswith("# mine\n")
    listed = json.loads(cli("context", "list", "--format", "json").out)
    assert (listed["current"], set(listed["contexts"])) == ("on", {"on", "12:30", "plain"})


@pytest.mark.parametrize(("words", "code", "why"), [
    (["set", "new"], 64, "needs an address"), (["set", "far", "--token-env", "s3cr/et"], 64, "not the name of"),
    (["set", "far", "--header", "X=s3cr/et"], 64, "not the name of"), (["use", "fra"], 1, "did you mean far?"),
    (["set", "far", "--address", "http://me:s3cr/et@far:1"], 1, "is not a cluster address"),
    (["set", "far", "--token-command", "a 'b"], 64, "no closing quotation"),
    (["set", "far", "--client-key", "key.pem", "--token-env", "A", "--token-command", "b"], 64, "give either"),
])
def test_invalid_settings_are_refused_and_nothing_is_written(
    cli, config: Path, words: list[str], code: int, why: str
) -> None:
    result = cli("context", *words)
    assert (result.code, config.read_text()) == (code, CONFIG)
    assert why in result.err
    assert "s3cr" not in result.err


def test_an_unknown_context_is_an_error_that_suggests_the_nearest_name(tmp_path: Path, config: Path) -> None:
    with pytest.raises(FleetctlError) as caught:
        open_dashboard(invocation(tmp_path, {"FLEETCTL_CONTEXT": "nera"}), None, None)
    assert caught.value.hint == "did you mean near?"


def test_context_names_are_completed(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    assert complete_contexts("") == ["near", "far"]
    assert complete_contexts("f") == ["far"]
    config.write_text("[")
    assert complete_contexts("") == []
