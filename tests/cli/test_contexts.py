"""Contexts: which cluster a command uses, with which namespace and which secrets."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
from cluster_stand_in import ClusterStandIn

from fleetctl.cli.commands import complete_contexts
from fleetctl.cli.process import this_invocation
from fleetctl.documents.fleet import Cluster
from fleetctl.errors import FleetctlError, InventoryError, UsageError
from fleetctl.workflow.contexts import context_for, given_address, refuse_two_clusters, resolve_namespace
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
ORDER = ("flag", "--context", "FLEETCTL_ADDRESS", "FLEETCTL_CONTEXT", "file", "current")


@pytest.mark.parametrize("given", [given for size in range(1, 7) for given in combinations(ORDER, size)], ids="+".join)
def test_of_every_combination_the_first_way_counts_with_its_own_namespace_and_token(
    tmp_path: Path, config: Path, given: tuple[str, ...],
) -> None:
    contexts = {name: {"address": f"http://{name}:1", "namespace": f"of-{name}", "token": {"env": f"TOKEN_{name}"}}
                for name in ("named", "chosen", "current")}
    config.write_text(json.dumps({"current": "current" if "current" in given else None, "contexts": contexts}))
    environ = {f"TOKEN_{name}": f"t-{name}" for name in contexts} | {"RAY_AUTH_TOKEN": "t-env"}
    environ |= {name: value for name, value in (("FLEETCTL_ADDRESS", "http://env:1"), ("FLEETCTL_CONTEXT", "chosen"))
                if name in given}
    flag = "http://flag:1" if "flag" in given else None
    written = Cluster.model_validate({"address": "http://file:1", "namespace": "of-file"} if "file" in given else {})
    run = invocation(tmp_path, environ, "named" if "--context" in given else None)
    address, namespace, token = {
        "flag": ("http://flag:1", written.namespace, "t-env"), "--context": ("http://named:1", "of-named", "t-named"),
        "FLEETCTL_ADDRESS": ("http://env:1", written.namespace, "t-env"),
        "FLEETCTL_CONTEXT": ("http://chosen:1", "of-chosen", "t-chosen"),
        "file": ("http://file:1", "of-file", None), "current": ("http://current:1", "of-current", "t-current"),
    }[next(way for way in ORDER if way in given)]
    with open_dashboard(run, flag, written.address) as client:
        assert client.base_url == address
        assert client._access.token == token
    assert resolve_namespace(run, Where(None, flag), written) == namespace
    assert given_address(run, flag) == (address if token and "current" not in address else None)


@pytest.mark.parametrize(("namespaces", "expected"), [
    ({"--namespace", "--context", "FLEETCTL_NAMESPACE"}, "of-flag"), ({"--context", "FLEETCTL_NAMESPACE"}, "far-space"),
    ({"FLEETCTL_NAMESPACE", "FLEETCTL_CONTEXT"}, "of-env"), ({"FLEETCTL_CONTEXT"}, "far-space"), (set(), "file-space"),
])
def test_the_namespace_follows_the_same_order(
    tmp_path: Path, config: Path, namespaces: set[str], expected: str,
) -> None:
    values = {"FLEETCTL_NAMESPACE": "of-env", "FLEETCTL_CONTEXT": "far"}
    run = invocation(tmp_path, {name: value for name, value in values.items() if name in namespaces},
                     "far" if "--context" in namespaces else None)
    where = Where(None, None, "of-flag" if "--namespace" in namespaces else None)
    assert resolve_namespace(run, where, Cluster.model_validate(FILE)) == expected


@pytest.mark.parametrize("address", ["http://far:8265", "http://far:8265/", "far:8265", "http://FAR:8265"])
@pytest.mark.parametrize("way", ["flag", "variable"])
def test_a_context_named_beside_its_own_address_is_used(tmp_path: Path, config: Path, address: str, way: str) -> None:
    environ = {"FAR_TOKEN": SECRET, "RAY_AUTH_TOKEN": "of-env"}
    environ |= {"FLEETCTL_ADDRESS": address} if way == "variable" else {}
    run = invocation(tmp_path, environ, "far")
    refuse_two_clusters(run, address if way == "flag" else None)
    with open_dashboard(run, address if way == "flag" else None, None) as client:
        assert client._access.token == SECRET


def test_two_paths_that_differ_in_case_are_two_clusters(tmp_path: Path, config: Path) -> None:
    config.write_text("contexts: {low: {address: 'https://ray.example/cluster-a'}}\n")
    run = invocation(tmp_path, {"FAR_TOKEN": SECRET, "FLEETCTL_ADDRESS": "https://RAY.example/cluster-a"}, "low")
    refuse_two_clusters(run, "HTTPS://ray.example/cluster-a/")
    with pytest.raises(UsageError, match="nothing was done"):
        refuse_two_clusters(run, "https://ray.example/Cluster-A")
    assert context_for(run, "https://ray.example/Cluster-A", None) is None


TAKING = {
    "evict": ("evict", "org/one/0", "--yes"), "restart": ("restart", "org/one/0", "--yes"),
    "replace": ("replace", "org/one", "-f", "{}", "--yes"), "drain": ("drain", "node-a", "-f", "{}", "--yes"),
    "prune": ("prune", "-f", "{}", "--yes"), "stop": ("stop", "--yes"),
    "release-nodes": ("release-nodes", "a-fleet", "--yes"),
}


@pytest.mark.parametrize("verb", TAKING)
@pytest.mark.parametrize("way", ["--address", "FLEETCTL_ADDRESS"])
def test_a_verb_that_takes_something_away_refuses_two_clusters(
    cli, cluster: ClusterStandIn, remote: str, fits: Path, monkeypatch: pytest.MonkeyPatch, verb: str, way: str,
) -> None:
    words = [word.format(fits) for word in TAKING[verb]]
    if way == "FLEETCTL_ADDRESS":
        monkeypatch.setenv("FLEETCTL_ADDRESS", cluster.url)
    else:
        words += ["--address", cluster.url]
    result = cli(*words, "--context", "other")
    assert result.code == 64
    assert f"--context other is http://other:1, but {way} is {cluster.url}; nothing was done" in result.err
    assert not cluster.requests


@pytest.mark.parametrize("flag", ["--context", "--address", "--namespace"])
@pytest.mark.parametrize("value", ["", " "])
def test_an_empty_flag_does_not_mean_another_cluster(cli, cluster: ClusterStandIn, flag: str, value: str) -> None:
    """A script whose variable is unset must not act on whatever cluster comes next in the order."""
    places = [("evict", "org/one/0", "--yes", flag, value)]
    places += [(flag, value, "evict", "org/one/0", "--yes")] if flag == "--context" else []
    for words in places:
        result = cli(*words)
        assert result.code == 64
        assert "is empty; is a variable unset?" in result.err
    assert not cluster.requests


def test_a_verb_of_a_context_acts_on_its_cluster(
    cli, cluster: ClusterStandIn, remote: str, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "another cluster's")
    monkeypatch.setenv("FLEETCTL_ADDRESS", remote + "/")
    cli("evict", "org/one/0", "--yes", "--context", "prod")
    assert sent(cluster, "authorization") == {f"Bearer {SECRET}"}


def test_reading_a_context_needs_no_second_look_at_the_environment(
    cli, cluster: ClusterStandIn, remote: str, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FLEETCTL_ADDRESS", "http://dev:1")
    assert cli("inventory", "--context", "prod").code == 0
    assert sent(cluster, "authorization") == {f"Bearer {SECRET}"}


@pytest.mark.parametrize(("cluster", "expected"), [
    (FILE, ("http://file:8265", "file-space")), ({}, ("http://near:8265", "near-space")),
    ({"namespace": "file-space"}, ("http://near:8265", "file-space")),
    ({"address": "http://file:8265"}, ("http://file:8265", "fleet")),
    ({"address": "http://near:8265"}, ("http://near:8265", "near-space")),
])
def test_the_current_context_counts_for_what_the_file_leaves_open(
    tmp_path: Path, config: Path, cluster: dict[str, str], expected: tuple[str, str],
) -> None:
    run, written = invocation(tmp_path, {}), Cluster.model_validate(cluster)
    with open_dashboard(run, None, written.address) as client:
        assert (client.base_url, resolve_namespace(run, Where(), written)) == expected


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
    (TOP + A + B + TAIL, "unset b", TOP + A + "  # about b\n\n  # after b\n" + TAIL),
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


@pytest.mark.parametrize(("before", "after"), [
    ("contexts:\n    far: {address: http://far:1}\n", "contexts:\n  far: {address: http://far:1, namespace: ns}\n"),
    ("contexts:\r\n  far:\r\n    address: http://far:1 # x\r\n",
     "contexts:\n  far:\n    address: http://far:1 # x\n    namespace: ns\n"),
    ('{"contexts": {"far": {"address": "http://far:1"}}}',
     "{contexts: {far: {address: http://far:1, namespace: ns}}}\n"),
    ("contexts: {far: {address: http://far:1, # x\n  token: {env: A}}}\n", None),
    ("contexts: {far: &far {address: http://far:1}, near: *far}\n",
     "contexts: {far: {address: http://far:1, namespace: ns}, near: {address: http://far:1}}\n"),
    ("contexts:\n  far: &far\n    address: http://far:1\n  near: *far\n", None),
])
def test_a_setting_is_added_in_any_layout_or_nothing_is_written(
        cli, config: Path, before: str, after: str | None) -> None:
    config.write_bytes(before.encode())
    result = cli("context", "set", "far", "--namespace", "ns")
    assert config.read_bytes().decode() == (after or before)
    assert (result.code, "change it by hand" in result.err) == ((0, False) if after else (1, True))


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
