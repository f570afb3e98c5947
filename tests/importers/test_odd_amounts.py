"""Infinite and invalid amounts are reported, and the import continues."""

from __future__ import annotations

from typing import Any

import pytest
from import_cases import account, imported

from fleetctl.agent.node import expand
from fleetctl.fleetfile.sources import SourceBytes

NDIF = "models:\n- {checkpoint: a/b, size_bytes: 1000, padding_factor: AMOUNT}\n"
SERVE = ("applications:\n- name: a\n  import_path: a:b\n  deployments:\n"
         "  - {name: d, num_replicas: 1, ray_actor_options: {num_gpus: AMOUNT}}\n")


@pytest.mark.parametrize("amount", [".inf", "-.inf", ".nan", "1e999"])
@pytest.mark.parametrize(("text", "field"), [(NDIF, "padding_factor"), (SERVE, "num_gpus")])
def test_an_infinite_amount_is_reported(text: str, field: str, amount: str) -> None:
    result = imported([SourceBytes("a.yaml", text.replace("AMOUNT", amount).encode())])
    assert f"{field}: not read: expected a finite number" in account(result)
    assert [model.value["replicas"] for model in result.draft.models] == [1]


def pod(container: str) -> str:
    """A LeaderWorkerSet with one container and additional fields of it."""
    return ("apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\nmetadata: {name: a}\nspec:\n"
            "  leaderWorkerTemplate: {size: 1, workerTemplate: {spec: {containers: [{command: [x], "
            f"{container}}}]}}}}}}\n")


def member_and_account(text: str) -> tuple[Any, str]:
    """The first member of an imported fleet file, and the reported losses."""
    result = imported([SourceBytes("a.yaml", text.encode())])
    return result.draft.models[0].value["workers"][0]["members"][0], account(result)


@pytest.mark.parametrize("amount", ["²", "9" * 5000, "-1", "0.5", "1k"])
def test_an_invalid_number_of_gpus_is_reported_and_the_import_continues(amount: str) -> None:
    member, losses = member_and_account(pod(f'resources: {{limits: {{nvidia.com/gpu: "{amount}", cpu: 1}}}}'))
    assert 'limits["nvidia.com/gpu"]: not a number of GPUs' in losses
    assert member["resources"] == {"cpus": 1}


@pytest.mark.parametrize(("resources", "gpus", "reported"), [
    ("limits: {nvidia.com/gpu: 1, amd.com/gpu: 2}", 1, '["amd.com/gpu"]: 2 is not kept: nvidia.com/gpu: 1 counts'),
    ("requests: {nvidia.com/gpu: 4}, limits: {nvidia.com/gpu: 8}", 4, "8 is not kept: nvidia.com/gpu: 4 counts"),
    ("requests: {amd.com/gpu: 4}, limits: {amd.com/gpu: 4}", 4, ""),
    ("limits: {nvidia.com/gpu: 0, amd.com/gpu: 2}", 2, ""),
])
def test_a_second_number_of_gpus_is_reported(resources: str, gpus: int, reported: str) -> None:
    member, losses = member_and_account(pod(f"resources: {{{resources}}}"))
    assert member["resources"]["gpus"] == gpus
    assert reported in losses
    assert ("not kept" in losses) == bool(reported)


@pytest.mark.parametrize("port", ["²", "9" * 5000])
def test_a_port_that_is_not_a_number_is_reported(port: str) -> None:
    assert "port: no such port" in member_and_account(pod(f'readinessProbe: {{tcpSocket: {{port: "{port}"}}}}'))[1]


def test_an_environment_value_of_a_pod_keeps_its_meaning() -> None:
    member, losses = member_and_account(pod(
        'env: [{name: A, value: "$$2b$(X)"}, {name: "", value: x}, {name: B, value: "$(A)$$(LWS_X)"}]'))
    assert member["engine"]["env"] == {"A": "$$2b$(X)", "B": "$(A)$$(LWS_X)"}
    assert "env[0].value: X is not set here" in losses
    assert "env[1]: a variable without a name" in losses


@pytest.mark.parametrize(("field", "ours"), [
    ("status.podIP", "HOST"), ("status.hostIP", "HOST"), ("spec.nodeName", "NODE"), ("metadata.name", "NAME"),
])
def test_a_field_of_a_pod_that_tells_an_engine_where_it_runs_becomes_our_variable(field: str, ours: str) -> None:
    member, losses = member_and_account(pod(
        f"env: [{{name: A, valueFrom: {{fieldRef: {{apiVersion: v1, fieldPath: {field}}}}}}}]"))
    assert member["engine"]["env"] == {"A": f"$(FLEETCTL_{ours})"}
    assert f"A is $(FLEETCTL_{ours}) here" in losses
    assert "not read" not in losses


def test_a_value_of_ray_serve_is_never_expanded() -> None:
    text = ('applications: [{import_path: a:b, runtime_env: {env_vars: {A: "$(HOME)$$x$$$(Y)$"}}, '
            'deployments: [{name: m, num_replicas: 1}]}]')
    member, _ = member_and_account(text)
    assert member["engine"]["env"] == {"A": "$$(HOME)$$$x$$$$$$(Y)$"}
    assert expand(member["engine"]["env"]["A"], {"HOME": "h", "Y": "y"}) == "$(HOME)$$x$$$(Y)$"


@pytest.mark.parametrize("ranks", ["1000000000", "'2'", "0", "1.5"])
def test_an_invalid_number_of_ranks_is_reported(ranks: str) -> None:
    for kind in ("tensor", "pipeline", "data"):
        text = ("applications:\n- import_path: ray.serve.llm:build_openai_app\n  args: {llm_configs: [{model_loading_"
                f"config: {{model_id: m}}, engine_kwargs: {{{kind}_parallel_size: {ranks}}}}}]}}\n")
        member, losses = member_and_account(text)
        assert f"{kind}_parallel_size: not a number of ranks" in losses
        assert member["resources"] == {"gpus": 1}


def test_an_infinite_startup_probe_does_not_stop_the_import() -> None:
    number = "9" * 30
    for many in (f"periodSeconds: -{number}", f"periodSeconds: {number}, failureThreshold: {number}"):
        member, losses = member_and_account(pod(f"startupProbe: {{{many}}}"))
        assert member["engine"]["command"] == ["x"]
        assert "periodSeconds: not read: expected a whole number from 0 to 2147483647" in losses


def test_an_invalid_number_of_worker_nodes_is_reported() -> None:
    for nodes in ("0", "-3"):
        template = "template: {spec: {containers: [{command: [x]}]}}"
        gang = ("apiVersion: modelplane.ai/v1alpha1\nkind: ModelDeployment\nmetadata: {name: a}\nspec: {replicas: 1, "
                f"engines: [{{name: main, members: [{{role: Leader, {template}}}, "
                f"{{role: Worker, worker: {{nodes: {nodes}}}, {template}}}]}}]}}")
        result = imported([SourceBytes("a.yaml", gang.encode())])
        assert result.draft.models[0].value["workers"][0]["members"][1]["count"] == 1
        assert "worker.nodes: not a valid number of nodes: 1 is used" in account(result)


def test_an_empty_model_id_makes_no_model() -> None:
    text = ("applications:\n- import_path: ray.serve.llm:build_openai_app\n  args: {llm_configs: ["
            "{model_loading_config: {model_id: ''}}, {model_loading_config: {model_id: m}}]}\n")
    result = imported([SourceBytes("a.yaml", text.encode())])
    assert [model.key for model in result.draft.models] == ["m"]
    assert "no model_id: the model is unknown" in account(result)


@pytest.mark.parametrize(("field", "value"), [("padding_factor", '"0.9"'), ("padding_bias", "500Mi"),
                                              ("gpus", "-1")])
def test_an_invalid_size_of_ndif_is_reported(field: str, value: str) -> None:
    size = {"size_bytes": "1048576", field: value}
    written = ", ".join(f"{name}: {one}" for name, one in size.items())
    _, losses = member_and_account(f"models:\n- {{checkpoint: a/b, {written}}}\n")
    assert f"models[0].{field}: not read" in losses


@pytest.mark.parametrize(("written", "revision"), [
    ("1234567", "@1234567"), ("0012345", "@0012345"), ("12e4567", "@12e4567"), ("'7'", "@7"), ("1.0", "@1.0"),
    ("null", ""), ("''", ""), ("[a]", "")])
def test_a_revision_of_digits_is_kept_as_written(written: str, revision: str) -> None:
    listed = f"models:\n- {{checkpoint: a/b, revision: {written}}}\n"
    result = imported([SourceBytes("a.yaml", listed.encode())])
    assert [model.value["key"] for model in result.draft.models] == [f"a/b{revision}"]
    assert ("revision: not read" in account(result)) == (written == "[a]")
    assert ("revision: part of the model key" in account(result)) == bool(revision)
