"""`model describe` and `weights index --describe`: what they write, what they say, and what they do not replace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_result import Cli

from fleetctl.fleetfile.model_numbers import parse_description
from tests.sizing.model_server import hub_of, serving
from tests.sizing.test_describe import CONFIG, PARAMETERS, write_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "m"
    folder.mkdir()
    write_model(folder)
    return folder


def test_a_description_is_written_once_in_few_lines_and_read_back_equal(cli: Cli, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "models" / "m.json"
    done = cli("model", "describe", folder, "--out", out)
    assert (done.code, done.out) == (0, "")
    assert done.err.splitlines() == [
        f"described: {folder}, LlamaForCausalLM: 86,848 parameters, 169.62Ki in BF16",
        ("described: 2 layers (2 with full attention); a token of context takes 256 of cache, a request has at most "
         "512 tokens"),
        f"written: {out}; a fleet file beside it names it as model: {{description: m.json}}"]
    text = out.read_text()
    assert text.endswith("}\n")
    assert "window" not in text, "what has its default is left out"
    assert parse_description("m.json", text.encode()).parameters == PARAMETERS
    assert cli("model", "describe", folder).out == text
    assert cli("model", "describe", folder, "-o", "-").out == text
    assert cli("model", "describe", folder, "--out", out).code == 0
    assert out.read_text() == text


def test_what_is_not_known_of_a_model_is_said(cli: Cli, folder: Path) -> None:
    config = {key: value for key, value in CONFIG.items() if key != "max_position_embeddings"}
    (folder / "config.json").write_text(json.dumps({
        **config, "layer_types": ["new_attention"] * 2, "quantization_config": {}}))
    assert [line for line in cli("model", "describe", folder).err.splitlines() if line.startswith("not known: ")] == [
        "not known: the kinds of attention: no plan blocks it because of its context",
        "not known: its longest context: plans compare its weights alone, unless the engine's flags set a length",
        "not known: the method of its quantization"]


def test_a_file_that_is_no_description_is_not_replaced(cli: Cli, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text("mine")
    done = cli("model", "describe", folder, "--out", tmp_path / "fleet.yaml")
    assert (done.code, (tmp_path / "fleet.yaml").read_text()) == (1, "mine")
    assert "fleet.yaml exists, and is not the description of a model" in done.err
    (tmp_path / "a-file").touch()
    assert "cannot write" in cli("model", "describe", folder, "--out", tmp_path / "a-file" / "m.json").err


def test_a_source_that_is_no_model_writes_nothing(cli: Cli, tmp_path: Path) -> None:
    done = cli("model", "describe", tmp_path / "none", "--out", tmp_path / "m.json")
    assert (done.code, done.out, (tmp_path / "m.json").exists()) == (1, "", False)
    assert "no such folder or file; a model may also be at http(s)://HOST/FOLDER, hf:OWNER/NAME@REVISION" in done.err
    assert cli("model", "describe").code == 64
    assert "hf:Qwen/Qwen3-8B@main or s3://" in cli("model", "describe", "Qwen/Qwen3-8B").err
    of_page = cli("model", "describe", "https://huggingface.co/Qwen/Qwen3-8B")
    assert (of_page.code, "name it as hf:Qwen/Qwen3-8B@main" in of_page.err) == (1, True)


@pytest.mark.parametrize("name", ["model.safetensors", "model.gguf"])
def test_a_pointer_of_git_lfs_is_called_so(cli: Cli, folder: Path, name: str) -> None:
    (folder / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 123\n")
    assert f"{name} is a pointer of Git LFS, not the file itself" in cli("model", "describe", folder / name).err


def test_a_hub_is_named_by_the_environment_and_init_uses_what_was_described(
    cli: Cli, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with serving(hub_of(folder, [])) as (hub, _):
        monkeypatch.setenv("HF_ENDPOINT", hub)
        done = cli("model", "describe", "hf:org/tiny@main", "--out", "models/tiny.json")
    assert done.code == 0, done.err
    assert "a fleet file in this folder names it as model: {description: models/tiny.json}" in done.err
    assert cli("init", "--model", "org/tiny").code == 0
    assert "model: {description: models/tiny.json}" in Path("fleet.yaml").read_text()
    plan = json.loads(cli("plan", "fleet.yaml", "--format", "json").out)
    assert (len(plan["actions"]), plan["blocked"]) == (1, [])


def test_a_token_for_a_hub_over_plain_http_is_warned_about(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_x")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    for hub, is_warned in (("http://hub.example.com", True), ("http://127.0.0.1:1", False)):
        monkeypatch.setenv("HF_ENDPOINT", hub)
        done = cli("model", "describe", "hf:org/tiny@main")
        assert (done.code, "sending the token in HF_TOKEN to hub.example.com over plain http" in done.err) == (
            1, is_warned)


def test_an_index_and_a_description_are_written_together(cli: Cli, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "fleets" / "models" / "m.json"
    done = cli("weights", "index", folder, "--describe", out)
    assert done.code == 0, done.err
    artifact = done.out.partition("index: ")[2].strip()
    assert json.loads(out.read_text())["source"] == f"{folder}@{artifact}"
    assert cli("model", "describe", folder / "fleetctl-weights.json").out == out.read_text()
    assert cli("weights", "index", folder).out == done.out, "the description is none of the model's files"
    inside = cli("weights", "index", folder, "--describe", folder / "m.json")
    assert (inside.code, "it would be one of the model's files" in inside.err) == (64, True)


def test_a_folder_that_cannot_be_described_is_not_indexed(cli: Cli, folder: Path, tmp_path: Path) -> None:
    (folder / "config.json").unlink()
    done = cli("weights", "index", folder, "--describe", tmp_path / "m.json")
    assert (done.code, (folder / "fleetctl-weights.json").exists(), (tmp_path / "m.json").exists()) == (1, False, False)
    assert "it has no config.json" in done.err
