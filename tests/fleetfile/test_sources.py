from __future__ import annotations

import os
from pathlib import Path

import pytest

from fleetctl.errors import FleetFileError
from fleetctl.fleetfile.file_tree import read_whole
from fleetctl.fleetfile.load import MAX_PROBLEMS, inspect_fleet, load_fleet
from fleetctl.fleetfile.sources import MAX_FILE_BYTES
from fleetctl.problem import Problem

from .fleets import fleet, model


def problems(*sources: str | Path, stdin: bytes | None = None) -> list[Problem]:
    given = None if stdin is None else lambda: stdin
    return list(inspect_fleet([str(source) for source in sources], stdin=given).problems)


def only(*sources: str | Path, stdin: bytes | None = None) -> Problem:
    found = problems(*sources, stdin=stdin)
    assert len(found) == 1, found
    return found[0]


def test_files_of_one_fleet_are_concatenated_in_the_order_of_arguments(tmp_path: Path) -> None:
    (tmp_path / "z.yaml").write_text(fleet(model("first"), spec="nodes: [{cordon: true}]\n"))
    (tmp_path / "a.yaml").write_text(fleet(model("second"), spec="nodes: [{cordon: false}]\n"))
    merged = load_fleet([str(tmp_path / "z.yaml"), str(tmp_path / "a.yaml")])
    assert [one.key for one in merged.models] == ["first", "second"]
    assert [policy.cordon for policy in merged.policies] == [True, False]
    assert [Path(source.path).name for source in merged.files] == ["z.yaml", "a.yaml"]


def test_a_folder_stands_for_its_yaml_files_sorted_by_name_without_subfolders(tmp_path: Path) -> None:
    for name in ("b.yml", "a.yaml", "notes.txt", ".hidden.yaml"):
        (tmp_path / name).write_text(fleet(model(name)))
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "c.yaml").write_text(fleet(model("below")))
    assert [one.key for one in load_fleet([str(tmp_path)]).models] == ["a.yaml", "b.yml"]


def test_a_file_name_that_is_not_utf_8_is_shown_with_escapes(tmp_path: Path) -> None:
    folder, name = tmp_path / "checkout" / "fleets", os.fsdecode(b"b\xff.yaml")
    folder.mkdir(parents=True)
    (folder / name).write_text(fleet())
    found = only(folder)
    assert (found.file, found.message) == (f"{folder}/b\\udcff.yaml", "cannot be read: its name is not UTF-8 text")
    (folder / name).replace(tmp_path / name)
    (folder / "a.yaml").symlink_to(tmp_path / name)
    assert r"b\udcff.yaml, which leads outside the checkout" in only(folder).message


def test_one_file_may_hold_the_policies_and_another_the_models(tmp_path: Path) -> None:
    (tmp_path / "nodes.yaml").write_text(fleet().split("  models:")[0] + "  nodes: [{cordon: true}]\n")
    (tmp_path / "models.yaml").write_text(fleet())
    merged = load_fleet([str(tmp_path)])
    assert (len(merged.models), len(merged.policies)) == (1, 1)


def test_several_documents_in_a_file_are_one_fleet_and_empty_ones_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text("---\n" + fleet(model("a")) + "---\n---\n" + fleet(model("b")) + "---\n# the end\n")
    assert [(one.key, one.source.line) for one in load_fleet([str(path)]).models] == [("a", 7), ("b", 20)]


def test_standard_input_is_a_source_with_its_own_name(tmp_path: Path) -> None:
    merged = load_fleet(["-"], stdin=lambda: fleet().encode())
    assert merged.models[0].source.file == "<stdin>"
    assert only("-", stdin=b"[").file == "<stdin>"


def test_a_byte_order_mark_and_windows_newlines_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + fleet(model(replicas="-1")).replace("\n", "\r\n").encode())
    assert (only(path).line, only(path).column) == (7, 15)


def test_columns_count_characters_not_bytes(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(fleet(model(restart='{backoff: "zwölf 🦙", max: -1}')), encoding="utf-8")
    assert [(problem.line, problem.column) for problem in problems(path)] == [(8, 24), (8, 40)]


def test_a_missing_file_and_an_empty_folder_have_different_problems(tmp_path: Path) -> None:
    assert only(tmp_path / "nowhere.yaml").code == "FL001"
    assert only(tmp_path).code == "FL002"


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    loop = tmp_path / "loop.yaml"
    loop.symlink_to(loop)
    assert only(loop).code == "FL001"


def test_the_same_file_twice_is_reported_under_any_name(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(fleet())
    other = tmp_path / "link.yml"
    other.symlink_to(path)
    assert only(path, path).code == "FL003"
    assert [problem.code for problem in problems(path, tmp_path)] == ["FL003", "FL003"]
    assert only("-", "-", stdin=fleet().encode()).code == "FL003"


def test_ten_megabytes_are_refused_without_reading_them(tmp_path: Path) -> None:
    path = tmp_path / "garbage.yaml"
    path.write_bytes(b"[" * 10_000_000)
    assert only(path).code == "FL004"
    assert only("-", stdin=b"x" * (MAX_FILE_BYTES + 1)).code == "FL004"


@pytest.mark.parametrize("pattern", [b"[", b"{a: ", b"- ", b"? ", b"&a ", b"'", b"\xff", b"\0", b"a: b\n", b"a"])
def test_garbage_up_to_the_size_limit_gives_problems_and_no_crash(pattern: bytes) -> None:
    found = problems("-", stdin=pattern * (200_000 // len(pattern)))
    assert 1 <= len(found) <= MAX_PROBLEMS + 1


def test_invalid_utf8_is_reported_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_bytes(fleet().encode() + b"# zw\xf6lf\n")
    problem = only(path)
    assert (problem.code, problem.line, problem.column) == ("FL005", 12, 5)
    assert "byte 0xf6 at offset" in problem.message


def test_utf16_is_recognized(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(fleet(), encoding="utf-16")
    assert "UTF-16" in only(path).message


def test_control_characters_are_reported_with_their_place() -> None:
    problem = only("-", stdin=fleet(model(key="a\x1b[31mb")).encode())
    assert (problem.code, problem.line, problem.column) == ("FL006", 6, 11)
    assert "U+001B" in problem.message


def test_too_many_problems_are_truncated_and_counted() -> None:
    found = problems("-", stdin=(fleet() + "  - 1\n" * 3000).encode())
    assert len(found) == MAX_PROBLEMS + 1
    assert found[-1].code == "FL019"
    assert "2000 more" in found[-1].message


def test_an_invalid_file_gives_no_fleet_and_all_errors_without_warnings(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(fleet(model(replicas="-1", placement="{sameLabel: rack}")))
    with pytest.raises(FleetFileError) as caught:
        load_fleet([str(path)])
    assert [problem.code for problem in caught.value.problems] == ["FL023"]
    assert {problem.severity for problem in problems(path)} == {"error", "warning"}


def test_warnings_alone_do_not_stop_a_fleet(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(fleet(model(placement="{sameLabel: rack}")))
    assert load_fleet([str(path)]).models[0].placement.same_label == "rack"


def test_duplicate_model_keys_across_files_name_both_places(tmp_path: Path) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text(fleet())
    second.write_text("# one line more\n" + fleet())
    problem = only(first, second)
    assert (problem.code, problem.file, problem.line) == ("FL040", str(second), 7)
    assert f"{first}:6:5" in problem.message


def test_an_invalid_file_does_not_give_an_empty_fleet(tmp_path: Path) -> None:
    assert only("-", stdin=b"models: [").code == "FL008"


def test_source_lines_are_left_out_if_they_may_hold_a_secret() -> None:
    open_line = only("-", stdin=fleet(model(replicas="-1")).encode())
    assert open_line.source_line == "    replicas: -1"
    members = "[{name: main, members: [{resources: {gpus: 1}, engine: {command: [x], env: {TOKEN: 12345}}}]}]"
    secret = only("-", stdin=fleet(model(workers=members)).encode())
    assert secret.code == "FL032"
    assert secret.source_line is None
    assert "12345" not in str(secret)


@pytest.mark.parametrize(("value", "code"), [
    ("*S3cretPw", "FL013"), ("!S3cretPw x", "FL012"), ("!S3cretPw {}", "FL012"), ("[*S3cretPw]", "FL013"),
])
def test_an_unquoted_secret_that_looks_like_yaml_syntax_is_not_repeated(value: str, code: str) -> None:
    engine = f"{{command: [x], env: {{PW: {value}}}}}"
    members = f"[{{name: main, members: [{{resources: {{gpus: 1}}, engine: {engine}}}]}}]"
    found = problems("-", stdin=fleet(model(workers=members)).encode())
    assert code in {problem.code for problem in found}
    assert not any("S3cret" in f"{problem} {problem.source_line}" for problem in found)


def test_a_problem_as_json_has_no_empty_keys() -> None:
    problem = only("-", stdin=fleet(model(replicas="-1")).encode())
    assert problem.as_json() == {
        "code": "FL023", "severity": "error", "message": "replicas is -1, out of range", "file": "<stdin>", "line": 7,
        "column": 15, "path": "spec.models[0].replicas", "allowed": "at least 0",
    }


def test_a_pipe_is_only_waited_for_while_it_has_a_writer(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    assert only(tmp_path / "pipe.yaml").message == "cannot be read: a pipe without a writer"
    ours, theirs = os.pipe()  # as a shell makes for <(...)
    wait = os.set_blocking

    def write_at_last(reader: int, blocking: bool) -> None:
        wait(reader, blocking)
        os.write(theirs, fleet().encode())
        os.close(theirs)

    monkeypatch.setattr(os, "set_blocking", write_at_last)
    assert problems(f"/dev/fd/{ours}") == []
    os.close(ours)


def test_an_endless_device_is_not_read_beyond_the_limit() -> None:
    with pytest.raises(OSError, match="larger than 1 MiB"):
        read_whole("/dev/zero", 1 << 20)


def test_broken_links_and_cycles_of_links_are_reported(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(fleet())
    (tmp_path / "circle.yaml").symlink_to("circle.yaml")
    (tmp_path / "nowhere.yaml").symlink_to("lost.yaml")
    for found in (problems(tmp_path), problems(*sorted(tmp_path.iterdir()))):
        assert [(one.code, Path(one.file).name) for one in found] == [
            ("FL001", "circle.yaml"), ("FL001", "nowhere.yaml")]


def test_an_impossible_file_name_is_a_problem() -> None:
    assert "name too long" in only("x" * 5000).message
