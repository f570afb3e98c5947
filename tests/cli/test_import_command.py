"""`fleetctl import` as a user runs it: where the fleet file goes, how losses are reported, and the exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

SOURCES = Path(__file__).parents[1] / "importers" / "sources"
LWS = """\
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: one}
spec:
  replicas: 2
  leaderWorkerTemplate:
    workerTemplate:
      spec:
        containers:
        - name: engine
          command: [serve, --rank, $(LWS_WORKER_INDEX)]
          resources: {limits: {nvidia.com/gpu: 2}}
"""


@pytest.fixture
def lws(tmp_path: Path) -> Path:
    """A file whose values all have an equivalent field in a fleet file."""
    path = tmp_path / "lws.yaml"
    path.write_text(LWS)
    return path


def test_a_complete_import_goes_to_standard_output_and_exits_with_0(run_cli, lws):
    done = run_cli("import", lws, "--fleet", "lab")
    assert done.returncode == 0
    assert "  - key: one\n    replicas: 2\n" in done.stdout
    assert "command: [serve, --rank, $(FLEETCTL_RANK)]" in done.stdout
    assert done.stderr == (f"{lws}:11:36: changed: command[2]: $LWS_WORKER_INDEX is written $FLEETCTL_RANK\n"
                           "imported: 1 model as fleet lab; 0 lost, 0 to do, 1 changed\n")


def test_the_fleet_file_is_sound_and_formatted(run_cli, lws, tmp_path):
    out = tmp_path / "fleet.yaml"
    run_cli("import", lws, "-o", out)
    assert run_cli("validate", "-f", out).stderr == "valid: fleet imported: 1 model, 2 replicas wanted\n"
    assert run_cli("fmt", "--check", out).returncode == 0


def test_the_folder_of_the_fleet_file_is_created(run_cli, lws, tmp_path):
    assert run_cli("import", lws, "-o", tmp_path / "fleets" / "lab.yaml").returncode == 0
    assert (tmp_path / "fleets" / "lab.yaml").exists()


def test_a_loss_is_reported_with_its_line_and_exits_with_3(run_cli, lws, tmp_path):
    lws.write_text(LWS.replace("containers:", "hostNetwork: true\n        containers:"))
    out = tmp_path / "fleet.yaml"
    done = run_cli("import", lws, "-o", out)
    assert done.returncode == 3
    assert done.stdout == ""
    assert f"{lws}:9:9: lost: hostNetwork: an engine is always on the node's network\n" in done.stderr
    assert "# lost: hostNetwork: an engine is always on the node's network\n" in out.read_text()


def test_an_existing_file_is_not_overwritten_without_force(run_cli, lws, tmp_path):
    out = tmp_path / "fleet.yaml"
    out.write_text("mine\n")
    refused = run_cli("import", lws, "-o", out)
    assert (refused.returncode, out.read_text()) == (1, "mine\n")
    assert "--force" in refused.stderr
    assert run_cli("import", lws, "-o", out, "--force").returncode == 0
    assert "key: one" in out.read_text()


def test_json_has_everything_and_standard_error_only_the_summary(run_cli, tmp_path):
    out = tmp_path / "fleet.yaml"
    done = run_cli("import", SOURCES / "lws-gang", "-o", out, "--format", "json", "--fleet", "lab")
    report = json.loads(done.stdout)
    assert done.returncode == 3
    assert (report["fleet"], report["file"], report["partial"], report["problems"]) == ("lab", str(out), True, [])
    assert [model["key"] for model in report["models"]] == ["llama-405b"]
    assert {loss["kind"] for loss in report["losses"]} == {"lost", "todo", "changed"}
    assert all(loss["source"]["line"] > 0 and loss["path"] is not None for loss in report["losses"])
    assert "hf_literal" not in done.stdout + done.stderr
    assert "hf_literal" in out.read_text()
    assert len(done.stderr.splitlines()) == 1


def test_json_and_the_fleet_file_do_not_share_standard_output(run_cli, lws):
    done = run_cli("import", lws, "--format", "json")
    assert (done.returncode, done.stdout) == (64, "")
    assert "-o FILE" in done.stderr


def test_declared_hardware_becomes_an_inventory_to_plan_on(run_cli, tmp_path):
    out, declared = tmp_path / "fleet.yaml", tmp_path / "declared.json"
    done = run_cli("import", SOURCES / "modelplane-gang", "-o", out, "--inventory-out", declared)
    assert done.returncode == 3
    assert "inventory: 2 nodes" in done.stderr
    assert "not observed" in done.stderr
    planned = run_cli("plan", "-f", out, "--inventory", declared, "--format", "json")
    assert json.loads(planned.stdout)["summary"]["create"] == 1


def test_hardware_alone_makes_an_inventory_and_no_fleet_file(run_cli, tmp_path):
    declared = tmp_path / "declared.json"
    done = run_cli("import", SOURCES / "modelplane-gang" / "hardware.yaml", "--inventory-out", declared)
    assert (done.returncode, done.stdout) == (3, "")
    assert json.loads(declared.read_text())["complete"] is True


def test_an_inventory_without_hardware_is_an_error(run_cli, lws, tmp_path):
    done = run_cli("import", lws, "--inventory-out", tmp_path / "declared.json")
    assert done.returncode == 1
    assert "no InferenceCluster" in done.stderr
    assert not (tmp_path / "declared.json").exists()


def test_nothing_to_import_is_an_error_that_lists_what_was_found(run_cli, tmp_path):
    path = tmp_path / "service.yaml"
    path.write_text("apiVersion: v1\nkind: Service\nmetadata: {name: a}\n")
    done = run_cli("import", path)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{path}:1:1: lost: Service of v1 is not imported" in done.stderr
    assert done.stderr.endswith("error: no model could be read\n"
                                "hint: the losses above list what was found instead, with its lines\n")


def test_an_empty_input_is_an_error_that_lists_what_can_be_imported(run_cli, tmp_path):
    path = tmp_path / "empty.yaml"
    path.write_text("# nothing\n")
    done = run_cli("import", path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "above" not in done.stderr
    assert done.stderr.endswith("error: no model could be read\n"
                                "hint: the files have no document to import: expected ModelDeployments, "
                                "LeaderWorkerSets, RayServices, Serve applications or NDIF models\n")


@pytest.mark.parametrize(("version", "kind", "loss"), [
    ("v1", "Endpoints", "Endpoints of v1 is not imported"),
    ("modelplane.ai/v1alpha1", "InferencePool", "InferencePool is not imported from Modelplane"),
])
def test_a_kind_that_is_not_imported_is_named(run_cli, tmp_path, version, kind, loss):
    path = tmp_path / "one.yaml"
    path.write_text(f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}\n")
    assert f"{path}:1:1: lost: {loss}" in run_cli("import", path).stderr


def test_a_missing_file_gets_no_hint_about_templates(run_cli, tmp_path):
    done = run_cli("import", tmp_path / "missing.yaml")
    assert done.returncode == 1
    assert "missing.yaml:1:1: error FL001" in done.stderr
    assert "helm template" not in done.stderr


def test_a_fleet_file_is_not_imported(run_cli, fleet_file):
    done = run_cli("import", fleet_file)
    assert done.returncode == 1
    assert "this is already a fleet file" in done.stderr


def test_every_yaml_problem_is_shown_and_nothing_is_written(run_cli, tmp_path):
    path, out = tmp_path / "chart.yaml", tmp_path / "fleet.yaml"
    path.write_text("kind: {{ .Values.kind }}\n")
    done = run_cli("import", path, tmp_path / "missing.yaml", "-o", out)
    assert done.returncode == 1
    assert f"{path}:1:" in done.stderr
    assert "missing.yaml:1:1: error FL001" in done.stderr
    assert "helm template" in done.stderr
    assert not out.exists()


def test_the_kind_of_a_file_can_be_forced(run_cli, tmp_path):
    path = tmp_path / "models.yaml"
    path.write_text("apiVersion: mine/v1\nmodels:\n- org/one\n")
    assert run_cli("import", path).returncode == 1
    done = run_cli("import", path, "--from", "ndif")
    assert done.returncode == 3
    assert "key: org/one" in done.stdout
    assert f"{path}:1:1: lost: apiVersion: the import does not know this field" in done.stderr


def test_a_json_list_from_kubectl_is_read(run_cli, tmp_path):
    path = tmp_path / "list.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [yaml.safe_load(LWS)]}, indent=4))
    done = run_cli("import", path)
    assert done.returncode == 0
    assert "key: one" in done.stdout


def test_the_name_of_the_fleet_is_checked_first(run_cli, lws):
    done = run_cli("import", lws, "--fleet", "My_Fleet")
    assert (done.returncode, done.stdout) == (64, "")
    assert "did you mean my-fleet?" in done.stderr


def test_a_default_fleet_name_comes_with_a_note_to_choose_one(run_cli, lws):
    assert "choose it before the first apply" in run_cli("import", lws).stdout
    assert "choose it before" not in run_cli("import", lws, "--fleet", "lab").stdout


def test_standard_input_is_read(run_cli):
    assert "key: one" in run_cli("import", "-", stdin=LWS).stdout


def test_a_fleet_file_with_problems_is_written_and_reported(run_cli, tmp_path):
    path, out = tmp_path / "models.yaml", tmp_path / "fleet.yaml"
    path.write_text('models:\n- "a model "\n')
    done = run_cli("import", path, "-o", out)
    assert done.returncode == 3
    assert f"{out}:" in done.stderr
    assert "error FL030" in done.stderr
    assert "the fleet file does not load yet: 1 problem to fix by hand" in done.stderr
    assert out.exists()


@pytest.mark.parametrize("flags", [("--address", "http://127.0.0.1:1"), ("--namespace", "x"), ("--inventory", "x")])
def test_files_and_a_cluster_cannot_be_combined(run_cli, lws, flags):
    assert run_cli("import", lws, *flags).returncode == 64


def test_a_dash_is_standard_output(run_cli, lws, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_cli("import", lws, "-o", "-").stdout == run_cli("import", lws).stdout
    assert not (tmp_path / "-").exists()


def test_two_documents_are_not_written_to_one_file(run_cli, tmp_path):
    done = run_cli("import", SOURCES / "modelplane-gang", "-o", tmp_path / "one", "--inventory-out",
                   tmp_path / "." / "one")
    assert (done.returncode, "is also written by --out" in done.stderr) == (64, True)
    assert not (tmp_path / "one").exists()


def test_the_folder_of_an_inventory_is_created(run_cli, tmp_path):
    declared = tmp_path / "made" / "declared.json"
    run_cli("import", SOURCES / "modelplane-gang", "-o", tmp_path / "lab.yaml", "--inventory-out", declared)
    assert json.loads(declared.read_text())["kind"] == "Inventory"


def test_with_a_runtime_an_image_is_started_instead_of_lost(run_cli, lws):
    lws.write_text(LWS.replace("name: engine", "image: registry.example/vllm@sha256:00"))
    assert "lost: image" in run_cli("import", lws).stderr
    done = run_cli("import", lws, "--runtime", "podman")
    assert "todo: image: podman starts registry.example/vllm@sha256:00: pull it on the nodes\n" in done.stderr
    [member] = yaml.safe_load(done.stdout)["spec"]["models"][0]["workers"][0]["members"]
    command = member["engine"]["command"]
    assert command[:3] == ["podman", "run", "--rm"]
    assert command[-5:] == ["--entrypoint=", "registry.example/vllm@sha256:00", "serve", "--rank", "$(FLEETCTL_RANK)"]


@pytest.mark.parametrize("flags", [("--from", "lws"), ("--runtime", "podman"), ("--inventory-out", "x.json")])
def test_flags_about_files_need_files(run_cli, flags):
    done = run_cli("import", *flags)
    assert done.returncode == 64
    assert "need files to import" in done.stderr


def test_text_of_a_file_cannot_control_the_terminal(run_cli, lws):
    lws.write_text(LWS.replace("metadata: {name: one}", 'metadata: {name: one, "\\e[2Jx": 1}'))
    done = run_cli("import", lws)
    assert "\x1b" not in done.stderr + done.stdout
    assert "\\x1b[2Jx" in done.stderr
