"""Text of any kind is read in bounded time and memory: each limit is a problem at its place, and nothing is worked off
that no limit has counted."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from fleetctl.documents import weights
from fleetctl.documents.names import LONGEST, nearest
from fleetctl.errors import FleetFileError
from fleetctl.fleetfile import compose, extends, load, rule_schema, sources, validate
from fleetctl.fleetfile.command_line import TEXT_BYTES
from fleetctl.fleetfile.format import format_source
from fleetctl.fleetfile.load import inspect_bytes
from fleetctl.fleetfile.sources import SourceBytes, decode, read_sources

from .fleets import fleet, model
from .memory_tree import MemoryTree, inspect, messages
from .split_fleets import HEAD

MEMBER = {"resources": {"gpus": 1}, "engine": {"command": ["serve"]}}
WORKERS = [{"name": "main", "members": [MEMBER]}]


def only(text: str, **files: str) -> str:
    found = messages({"fleet.yaml": text, **files})
    assert len(found) == 1, found[:3]
    return found[0]


def as_text(spec: dict[str, Any]) -> str:
    return json.dumps({**HEAD, "spec": spec}, ensure_ascii=False)


def formatting(text: str) -> str:
    with pytest.raises(FleetFileError) as caught:
        format_source(SourceBytes("fleet.yaml", text.encode()))
    return str(caught.value.problems[-1])


@pytest.mark.parametrize("text", ["---\n", "--- {}\n", "---\n...\n", "--- a\n", "---\n# note\n"])
def test_documents_are_counted_while_they_are_read(text: str) -> None:
    many = text * (compose.MAX_DOCUMENTS + 2)
    assert f"FL014: more than {compose.MAX_DOCUMENTS} documents in one file" in formatting(many)
    assert {"FL014", "FL019"} & {one.split()[2].rstrip(":") for one in messages({"fleet.yaml": many})}


@pytest.mark.parametrize(("text", "instead"), [
    ("---\n" * (compose.MAX_DOCUMENTS + 1), "one document with all its models"),
    ("a: " + "[" * 100, "is a bracket or an indentation wrong?"),
    (f'a: "{"x" * (compose.MAX_TEXT + 1)}"', "a file on the nodes"),
    ("a: [" + "1, " * (compose.MAX_NODES + 1) + "]", "several fleets"),
])
def test_a_limit_says_what_to_do_instead(text: str, instead: str) -> None:
    found = formatting(text)
    assert "FL014" in found
    assert instead in found.partition("; allowed: ")[2]


def test_limits_of_one_model_and_of_the_rest_say_what_to_do_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validate, "PART", 20)
    monkeypatch.setattr(validate, "MAX_BESIDE_MODELS", 20)
    text = as_text({"nodes": [{"cordon": True}] * 30, "models": [{"key": "m", "replicas": 1, "workers": WORKERS * 9}]})
    found = [one.partition("; allowed: ")[2] for one in messages({"fleet.yaml": text}) if "FL014" in one]
    assert sorted(one.split()[0] for one in found) == ["copies", "fewer"]


def test_lines_are_counted_before_they_are_read() -> None:
    assert "FL014: more than 500000 lines" in only("\n" * 500_000)


@pytest.mark.parametrize("text", ['"%s"', "%s", '"%s": 1', "[%s]", "{a: %s}", "|\n %s", "&a %s", "!t %s"])
def test_a_text_is_no_longer_than_a_process_can_receive(text: str) -> None:
    found = messages({"fleet.yaml": text % ("x" * (compose.MAX_TEXT + 1))})
    assert any(code in found[-1] for code in ("a text of 131073 characters, more than 131072", "FL008")), found[-1]


def test_an_alias_counts_with_the_length_of_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compose, "MAX_NODES", 1000)
    text = "a: &a " + "x" * 6400 + "\nb: [" + "*a, " * 9 + "]"
    assert "FL014: more than 1000 values in one fleet, with aliases expanded" in only(text)


def test_values_are_counted_over_all_files_and_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compose, "MAX_NODES", 100)
    single = as_text({"models": [{"key": "m", "replicas": 1, "workers": WORKERS}]})
    files = {f"{number}.yaml": single.replace('"m"', f'"m{number}"') for number in range(8)}
    assert any("FL014" in one for one in messages(files, *files))
    assert any("FL014" in one for one in messages({"fleet.yaml": "\n---\n".join(files.values())}))
    bases = {**files, "fleet.yaml": json.dumps({**HEAD, "extends": list(files), "spec": {}})}
    assert any("FL014" in one for one in messages(bases))


def test_what_was_read_before_an_error_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each file that is too large is read up to the limit."""
    monkeypatch.setattr(compose, "MAX_NODES", 100)
    first = compose.compose_bytes(SourceBytes("a", b"[" + b"1, " * 60 + b"}"))
    assert first.broken
    assert first.size > 60
    assert compose.compose_bytes(SourceBytes("b", b"[" + b"1, " * 60 + b"]"), first.size).broken


def test_bytes_are_counted_over_all_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MAX_ALL_BYTES", 1000)
    monkeypatch.setattr(extends, "MAX_ALL_BYTES", 1000)
    comment = "# " + "x" * 600 + "\n"
    tree = MemoryTree({f"{number}.yaml": comment for number in range(9)})
    read, problems = read_sources([*tree.files], None, tree)
    assert ([source.file for source in read], [problem.code for problem in problems]) == (["0.yaml"], ["FL004"])
    assert tree.read_paths == ["0.yaml", "1.yaml"], "the others are not read"
    bases = {f"base{number}.yaml": comment + json.dumps({**HEAD, "spec": {}}) for number in range(3)}
    found = messages({"fleet.yaml": json.dumps({**HEAD, "extends": [*bases], "spec": {}}), **bases})
    assert sum("larger than 16 MiB in all" in one for one in found) == 2


def test_files_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MAX_FILES", 3)
    files = {f"folder/{number}.yaml": fleet() for number in range(9)}
    tree = MemoryTree(files)
    _, problems = read_sources(["folder"], None, tree)
    assert [problem.message for problem in problems] == ["more than 3 files; the others are not read"]
    assert len(tree.read_paths) == 3


def test_files_with_rules_are_counted() -> None:
    text = as_text({"policy": {"schemas": ["rules.json"] * 5000}, "models": []})
    tree = MemoryTree({"fleet.yaml": text, "rules.json": "{}"})
    inspect_bytes([SourceBytes("fleet.yaml", text.encode())], tree=tree)
    assert tree.read_paths.count("rules.json") == load.MAX_SCHEMAS


@pytest.mark.parametrize("text", ["a: 1\n", "? [a]\n: 1\n", "1: 1\n", "a: !t x\n", "<<: 1\n"])
def test_problems_of_yaml_end_the_reading_when_there_are_too_many(text: str) -> None:
    found = compose.compose_bytes(SourceBytes("fleet.yaml", (text * 20_000).encode()))
    assert len(found.problems) == compose.MAX_NOTES + 1
    assert (found.problems[-1].code, found.broken) == ("FL019", True)


@pytest.mark.slow
@pytest.mark.parametrize("items", ["{}", "1", "{key: 1, replicas: x, workers: 1}", "{a: 1, b: 1, c: 1}"])
def test_problems_take_little_memory(items: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each error of pydantic takes a kilobyte; all those of this text take 20 MiB or more."""
    monkeypatch.setattr(validate, "PART", 400)
    text = f"{fleet()}  - {items}\n" + f"  - {items}\n" * 8_000
    tracemalloc.start()
    found = messages({"fleet.yaml": text})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found) == 1001
    assert peak < 18 << 20


def test_many_problems_on_one_long_line_copy_it_only_in_part() -> None:
    text = decode(SourceBytes("fleet.yaml", b"a\r\n" + b"x" * 1_000_000 + b"\n" + b"y" * 200))
    assert [text.shown_line(number) for number in (1, 2, 3)] == ["a", None, "y" * 200]
    tracemalloc.start()
    found = text.problem("FL020", 500_000, "unknown key")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (found.line, found.source_line) == (2, None)
    assert peak < 10_000


def large(count: int, **changed: Any) -> str:
    models = [{"key": f"m{number}", "replicas": number, "workers": WORKERS} for number in range(count)]
    models[count - 2] |= changed
    return as_text({"models": models, "defaults": {"priority": 7}, "nodes": [{"cordon": True}]})


def test_a_large_fleet_is_checked_in_parts_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models of one part and the rest are put together again, and problems have their own places."""
    for text in (large(20), large(20, replicas="x", workers=None), large(20).replace("cordon", "cordn"),
                 large(20).replace("Fleet", "Fleets"), large(20).replace('"models"', '"model"'),
                 json.dumps({**HEAD, "spec": None}), json.dumps({**HEAD, "spec": {"models": "x"}})):
        monkeypatch.setattr(validate, "PART", 10_000)
        whole = inspect({"fleet.yaml": text})
        monkeypatch.setattr(validate, "PART", 30)
        parts = inspect({"fleet.yaml": text})
        assert (parts.problems, parts.fleet) == (whole.problems, whole.fleet)


def test_a_single_model_and_what_is_beside_the_models_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validate, "PART", 60)
    monkeypatch.setattr(validate, "MAX_BESIDE_MODELS", 100)
    args = [{"name": "main", "members": [{**MEMBER, "engine": {"command": ["serve", *"x" * 99]}}]}]
    assert "more than 60 values in one model" in messages({"fleet.yaml": large(9, workers=args)})[0]
    text = as_text({"models": [], "nodes": [{"cordon": True}] * 99})
    assert "more than 100 values beside the models" in messages({"fleet.yaml": text})[0]


def with_view(**view: Any) -> str:
    member = {**MEMBER, "weights": {"from": [{"hf": "org/m"}], "index": "0" * 64, "view": view}}
    return as_text({"models": [{"key": "m", "replicas": 1, "workers": [{"name": "main", "members": [member]}]}]})


@pytest.mark.parametrize("pattern", ["(?i:[a-\U0010ffff])", "[\\u0100-\\uffff]", "[é-ÿ]", "(?:a|b)*"])
def test_regular_expressions_cost_little_to_read(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    monkeypatch.setattr("fleetctl.fleetfile.rules.regex_error", compiled.append)
    rules = [{"match": pattern * 20 + str(number)} for number in range(1000)]
    found = only(with_view(shard={"rules": rules}))
    assert "FL081: the regular expressions of this fleet take too long to read" in found
    assert sum(len(text) * (1 if text.isascii() and "\\u" not in text else 30) for text in compiled) <= 50_000


def test_a_regular_expression_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    monkeypatch.setattr("fleetctl.fleetfile.rules.regex_error", compiled.append)
    messages({"fleet.yaml": with_view(shard={"rules": [{"match": "a"}] * 1000})})
    assert compiled == ["a"]
    assert weights.regex_error("(q")


def test_long_words_resemble_nothing() -> None:
    assert nearest("a" * LONGEST, ["a" * (LONGEST - 1)])
    assert nearest("a" * (LONGEST + 1), ["a" * LONGEST]) is None
    assert nearest("a" * LONGEST, ["a" * (LONGEST + 1)]) is None


def test_a_thousand_misspelled_shapes_get_few_suggestions(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("fleetctl.fleetfile.extends.nearest", lambda word, known: asked.append(word) if known else None)
    spec = {"shapes": {f"shape{number}": {"workers": WORKERS} for number in range(1500)},
            "models": [{"key": f"m{number}", "replicas": 1, "shape": f"shepe{number}"} for number in range(1500)]}
    messages({"fleet.yaml": as_text(spec)})
    assert len(asked) <= 100


@pytest.mark.parametrize(("key", "value"), [
    ("replicas", '"1"'), ("priority", '"1"'), ("startupTimeout", "%s"), ("restart", "{backoff: %s}"),
])
def test_long_texts_are_guessed_at_in_no_time(key: str, value: str) -> None:
    """Two adjacent repetitions in a pattern take the square of the spaces between them."""
    for text in ("1" + " " * 100_000 + "!", " " * 100_000 + "!", "1h" * 60_000, "in(" * 40_000, "$(" * 60_000):
        quoted = value % f'"{text}"' if "%" in value else f'"{text}"'
        assert messages({"fleet.yaml": fleet(model(**{key: quoted}))})


def test_rules_are_at_most_a_mebibyte() -> None:
    assert load.MAX_RULES_BYTES == 1 << 20
    assert rule_schema.MOST_MEMORY + (160 << 20) < 300 << 20, "the fleet is in memory beside them"


def engine_of(**keys: Any) -> str:
    member = {**MEMBER, "engine": {"command": ["serve"], **keys}}
    return as_text({"models": [{"key": "m", "replicas": 1, "workers": [{"name": "main", "members": [member]}]}]})


@pytest.mark.parametrize(("keys", "of"), [
    ({"args": ["x" * TEXT_BYTES]}, f"this text has {TEXT_BYTES} bytes"),
    ({"args": ["\u20ac" * (TEXT_BYTES // 3 + 1)]}, "this text has 131073 bytes"),
    ({"env": {"NAME": "x" * (TEXT_BYTES - 5)}}, f"NAME with its value has {TEXT_BYTES} bytes"),
    ({"liveness": {"exec": {"command": ["x" * TEXT_BYTES]}}}, f"this text has {TEXT_BYTES} bytes"),
])
def test_a_text_that_linux_hands_to_no_process_is_an_error(keys: dict[str, Any], of: str) -> None:
    found = only(engine_of(**keys))
    assert "error FL090" in found
    assert f"{of}, and Linux hands a process at most {TEXT_BYTES - 1} in one" in found


def test_the_longest_text_is_no_problem() -> None:
    assert messages({"fleet.yaml": engine_of(
        args=["x" * (TEXT_BYTES - 1)], env={"NAME": "x" * (TEXT_BYTES - 6)})}) == []
