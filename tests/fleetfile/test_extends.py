"""The base files of a fleet: found, read once, merged in one order, and refused if that is impossible."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.fleetfile.extends import MAX_BASES, MAX_DEPTH
from fleetctl.fleetfile.load import inspect_fleet, load_fleet

from .fleets import fleet, model
from .memory_tree import MemoryTree, inspect, load, messages

HEAD = "apiVersion: fleetctl/v1\nkind: Fleet\n"


def part(spec: str = "{}", *, extends: str = "", name: str = "") -> str:
    """A part of a fleet: its `extends`, and its spec on one line."""
    lines = [f"extends: {extends}"] * bool(extends) + [f"metadata: {{name: {name}}}"] * bool(name)
    return HEAD + "".join(f"{line}\n" for line in lines) + f"spec: {spec}\n"


def priorities(order: str) -> str:
    return part(f"{{defaults: {{priority: {order}}}}}")


def test_a_base_need_not_be_a_fleet_by_itself() -> None:
    files = {"fleet.yaml": part("{models: [{key: m, replicas: 4}]}", extends="base.yaml", name="prod"),
             "base.yaml": HEAD + "spec:\n  models:\n" + model("m").replace("    replicas: 1\n", "")}
    assert [(one.key, one.replicas) for one in load(files).models] == [("m", 4)]
    assert load(files).name == "prod"


def test_a_name_is_relative_to_the_file_that_has_it() -> None:
    files = {"envs/prod/fleet.yaml": part(extends="../../base/models.yaml", name="prod"),
             "base/models.yaml": fleet().replace("spec:", "extends: nodes.yaml\nspec:"),
             "base/nodes.yaml": part("{nodes: [{cordon: true}]}")}
    loaded = load(files, "envs/prod/fleet.yaml")
    assert [source.path for source in loaded.files] == [
        "envs/prod/fleet.yaml", "base/models.yaml", "base/nodes.yaml"]
    assert [policy.cordon for policy in loaded.policies] == [True]


def test_in_standard_input_a_name_is_relative_to_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "base.yaml").write_text(fleet())
    monkeypatch.chdir(tmp_path)
    loaded = load_fleet(["-"], stdin=lambda: part(extends="./base.yaml", name="lab").encode())
    assert [source.path for source in loaded.files] == ["<stdin>", "base.yaml"]


def test_of_several_bases_the_later_wins_and_the_file_wins_over_all() -> None:
    files = {"fleet.yaml": fleet().replace("spec:", "extends: [a.yaml, b.yaml]\nspec:"),
             "a.yaml": priorities("1, startupTimeout: 1m"), "b.yaml": priorities("2")}
    assert [(one.priority, one.startup_timeout_s) for one in load(files).models] == [(2, 60)]
    files["fleet.yaml"] = files["fleet.yaml"].replace("spec:\n", "spec:\n  defaults: {priority: 3}\n")
    assert [(one.priority, one.startup_timeout_s) for one in load(files).models] == [(3, 60)]


def test_a_base_reached_twice_is_merged_only_the_first_time() -> None:
    files = {"fleet.yaml": fleet().replace("spec:", "extends: [a.yaml, b.yaml]\nspec:"),
             "a.yaml": part("{defaults: {priority: 1}}", extends="common.yaml"),
             "b.yaml": part("{nodes: [{cordon: false}]}", extends="common.yaml"),
             "common.yaml": part("{defaults: {priority: 9}, nodes: [{cordon: true}]}")}
    loaded = load(files)
    assert [one.priority for one in loaded.models] == [1]
    assert [policy.cordon for policy in loaded.policies] == [True, False]


def test_every_file_is_read_once_and_listed_with_its_digest() -> None:
    tree = MemoryTree({"fleet.yaml": fleet().replace("spec:", "extends: [a.yaml, b.yaml]\nspec:"),
                       "a.yaml": part(extends="b.yaml"), "b.yaml": part()})
    loaded = load_fleet(["fleet.yaml"], tree=tree)
    assert tree.read_paths == ["fleet.yaml", "a.yaml", "b.yaml"]
    assert [source.path for source in loaded.files] == tree.read_paths
    assert len({source.sha256 for source in loaded.files}) == 3


def test_the_depth_of_bases_is_limited() -> None:
    def chain(length: int) -> dict[str, str]:
        links = {f"{number}.yaml": part(extends=f"{number + 1}.yaml") for number in range(1, length)}
        return {"fleet.yaml": fleet().replace("spec:", "extends: 1.yaml\nspec:"), **links, f"{length}.yaml": part()}

    assert load(chain(MAX_DEPTH)).name == "lab"
    assert messages(chain(MAX_DEPTH + 1)) == [
        f"{MAX_DEPTH}.yaml:3:10: error FL055: files extend each other more than {MAX_DEPTH} levels deep"]


def test_the_number_of_bases_is_limited_and_reported_once() -> None:
    def files(count: int) -> dict[str, str]:
        """Groups of ten names: a list of bases, each of which extends nine others."""
        groups = {f"{group}.yaml": [f"{group}-{number}.yaml" for number in range(9)] for group in range(count)}
        return {"fleet.yaml": fleet().replace("spec:", f"extends: [{', '.join(groups)}]\nspec:"),
                **{group: part(extends=f"[{', '.join(names)}]") for group, names in groups.items()},
                **{name: part() for names in groups.values() for name in names}}

    assert len(load(files(MAX_BASES // 10)).files) == MAX_BASES + 1
    assert messages(files(MAX_BASES // 10 + 2)) == [
        f"fleet.yaml:4:91: error FL055: more than {MAX_BASES} files are extended, directly or through bases"]


def test_a_cycle_is_shown_with_all_its_files() -> None:
    files = {"fleet.yaml": part(extends="a.yaml", name="lab"), "a.yaml": part(extends="[./b.yaml]"),
             "b.yaml": part(extends="a.yaml")}
    cycle = "b.yaml:3:10: error FL055: files extend each other in a cycle:"
    assert messages(files) == [f"{cycle} a.yaml -> b.yaml -> a.yaml"]
    files["b.yaml"] = part(extends="b.yaml")
    assert messages(files) == [f"{cycle} b.yaml -> b.yaml"]


def test_missing_keys_are_not_reported_if_a_base_could_not_be_read() -> None:
    files = {"fleet.yaml": part("{models: [{key: m, workers: [{name: main, members: [{resources: {}}]}]}]}",
                                extends="[gone/it.yaml, closed.yaml]", name="lab")}
    found = inspect_fleet(["fleet.yaml"], tree=MemoryTree(files, closed=["closed.yaml"])).problems
    assert [str(problem) for problem in found] == [
        "fleet.yaml:3:11: error FL018: no such file: gone/it.yaml",
        "fleet.yaml:3:25: error FL018: closed.yaml: cannot be read: Permission denied"]


def test_a_base_also_given_with_f_is_not_reported_as_duplicate_models() -> None:
    files = {"fleets/prod.yaml": part(extends="base.yaml", name="lab"), "fleets/base.yaml": fleet()}
    assert messages(files, "fleets/prod.yaml", "fleets/base.yaml") == [
        ("fleets/prod.yaml:3:10: error FL056: fleets/base.yaml is also given with -f, so its models would count "
         "twice; allowed: one of the two; a file named here is read without -f")]


def test_a_base_too_large_is_refused_at_its_name() -> None:
    files = {"fleet.yaml": part(extends="huge.yaml", name="lab"), "huge.yaml": "#" * (8 << 20) + "\n"}
    assert messages(files) == ["fleet.yaml:3:10: error FL018: huge.yaml: larger than 8 MiB"]


def test_the_suggested_name_is_relative_like_the_given_one() -> None:
    files = {"envs/fleet.yaml": part(extends="../base/model.yaml", name="lab"), "base/models.yaml": fleet()}
    assert messages(files, "envs/fleet.yaml")[0].endswith("did you mean ../base/models.yaml?")


def test_a_foreign_document_is_not_followed() -> None:
    files = {"fleet.yaml": "apiVersion: v1\nkind: Thing\nextends: nowhere.yaml\n"}
    assert [problem.code for problem in inspect(files).problems] == ["FL024"]


def test_a_setting_allowed_once_may_be_in_a_base_and_above_it_but_not_in_two_documents() -> None:
    files = {"fleet.yaml": fleet(spec="cluster: {address: auto}\n").replace("spec:", "extends: base.yaml\nspec:"),
             "base.yaml": part("{cluster: {address: x, namespace: n}, policy: {maxNewReplicas: 1}}"),
             "more.yaml": part("{policy: {maxNewGpus: 1}}", name="lab")}
    assert (load(files).cluster.address, load(files).cluster.namespace) == ("auto", "n")
    assert messages(files, "fleet.yaml", "more.yaml") == [
        "more.yaml:4:8: error FL057: spec.policy is already set at base.yaml:3:45"]


def test_a_place_is_in_the_last_file_that_sets_the_value() -> None:
    files = {"fleet.yaml": part("{policy: {maxNewReplicas: 5}, models: [{key: b, replicas: 2}]}",
                                extends="base.yaml", name="lab"),
             "base.yaml": fleet(model("a"), model("b"), spec="policy: {maxNewReplicas: 1, maxNewGpus: 8}\n")}
    loaded = load(files)
    assert [(one.key, one.source.file, one.source.line) for one in loaded.models] == [
        ("a", "base.yaml", 7), ("b", "fleet.yaml", 5)]
    assert {key: (place.file, place.line, place.column) for key, place in loaded.policy_places.items()} == {
        "maxNewReplicas": ("fleet.yaml", 5, 33), "maxNewGpus": ("base.yaml", 5, 43)}


def test_a_suggestion_is_never_another_misspelled_name_of_the_overlay() -> None:
    files = {"base.yaml": fleet(model("org/large")), "fleet.yaml": part(
        "{models: [{key: org/lrage, replicas: 4}, {key: org/lrages, replicas: 4}]}", extends="base.yaml", name="lab")}
    assert [message.partition("; ")[2] for message in messages(files)] == ["did you mean org/large?"] * 2


def test_a_misspelled_name_in_an_overlay_lacks_its_keys_and_gets_a_suggestion() -> None:
    files = {"base.yaml": fleet(model("org/large"), model("org/small")),
             "fleet.yaml": part("{models: [{key: org/lrage, replicas: 4}, {key: org/small, workers: [{name: mian}]}]}",
                                extends="base.yaml", name="lab")}
    files["base.yaml"] = files["base.yaml"].replace("    replicas: 1\n", "", 1)
    assert messages(files) == [
        ('fleet.yaml:5:17: error FL021: a model needs the key "workers", and no base has "org/lrage"; '
         "did you mean org/large?"),
        ('fleet.yaml:5:75: error FL021: a worker group needs the key "members", and no base has "mian"; '
         "did you mean main?"),
        'base.yaml:6:5: error FL021: a model needs the key "replicas"']
    alone = {"fleet.yaml": fleet("  - {key: org/lrage, replicas: 4}\n", model("org/large"))}
    assert messages(alone) == [('fleet.yaml:6:5: error FL021: a model needs the key "workers"; '
                                "allowed: workers, variants, or shape: NAME from spec.shapes")]
