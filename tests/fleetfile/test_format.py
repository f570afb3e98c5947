from __future__ import annotations

import io
import json
from collections import Counter
from typing import Any

import pytest
import ruamel.yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from random_cases import cases

from fleetctl.errors import FleetFileError
from fleetctl.fleetfile.format import format_source
from fleetctl.fleetfile.sources import SourceBytes

from .fleets import HEAD

UNTIDY = """\
# yaml-language-server: $schema=x

# above kind
kind: Fleet   # the kind
apiVersion: fleetctl/v1
spec:
    # above models

    models:
        # above the first
        -   replicas: 3
            # above its key
            key: a   # behind its key
            workers:
              - name: main
                members:
                  - engine:
                        command: [sh, -c,
                            "x",   # inside brackets
                            y]
                        args:
                          - |
                              one
                                two
                          - >-
                              folded
                              text
                        env: &env
                            A: "1"
                            # B: commented out
                    resources: {gpus: 1}
                # - role: commented out
            # at the end of the model


        - key: b
          replicas: 0
          workers: []
    defaults: {priority: 1}
metadata: {name: lab}
# the end
"""

TIDY = """\
# yaml-language-server: $schema=x

# above kind
apiVersion: fleetctl/v1
kind: Fleet   # the kind
metadata: {name: lab}
spec:
  defaults: {priority: 1}
  # above models

  models:
  # above the first
  # above its key
  - key: a   # behind its key
    replicas: 3
    workers:
    - name: main
      members:
      - resources: {gpus: 1}
        engine:
          command: [sh, -c,
              "x",   # inside brackets
              y]
          args:
          - |
              one
                two
          - >-
              folded
              text
          env: &env
            A: "1"
            # B: commented out
      # - role: commented out
    # at the end of the model

  - key: b
    replicas: 0
    workers: []
# the end
"""


def formatted(text: str | bytes) -> str:
    return format_source(SourceBytes("fleet.yaml", text if isinstance(text, bytes) else text.encode())).after


def judged(text: str) -> list[str]:
    """The values according to another loader, ruamel's YAML 1.2."""
    loader = ruamel.yaml.YAML(typ="safe", pure=True)
    return [json.dumps(document, sort_keys=True, default=str) for document in loader.load_all(io.StringIO(text))]


def comments(text: str) -> Counter[str]:
    return Counter(line.partition("#")[2].strip() for line in text.splitlines() if "#" in line)


def test_an_untidy_file_is_formatted() -> None:
    assert formatted(UNTIDY) == TIDY


def test_a_formatted_file_stays_unchanged() -> None:
    assert formatted(TIDY) == TIDY
    assert not format_source(SourceBytes("fleet.yaml", TIDY.encode())).changed


def test_formatting_keeps_the_meaning_and_the_comments() -> None:
    assert judged(formatted(UNTIDY)) == judged(UNTIDY)
    assert comments(formatted(UNTIDY)) == comments(UNTIDY)


@pytest.mark.parametrize(("text", "expected"), [
    ("a: 1", "a: 1\n"),
    ("a:   1\nb:\n    - 2\n    -   3\n", "a: 1\nb:\n- 2\n- 3\n"),
    ("a: 1\r\nb: 2\r\n", "a: 1\nb: 2\n"),
    ("\ufeffa: 1\n", "a: 1\n"),
    ("\n\n\na: 1\n\n\n\nb: 2\n\n\n", "a: 1\n\nb: 2\n"),
    ("a:\n- - 1\n  - 2\n-\n  b: 3\n", "a:\n- - 1\n  - 2\n- b: 3\n"),
    ("a:\n  - # why\n    b: 1\n", "a:\n# why\n- b: 1\n"),
    ("a:\n    # why\n    1\n", "# why\na: 1\n"),
    ("a: &x # why\n    b: 1\nc: *x\n", "a: &x # why\n  b: 1\nc: *x\n"),
    ("a: |+\n      kept\n\n\nb: 1\n", "a: |+\n      kept\n\n\nb: 1\n"),
    ("a: |\n    one\n\n\n    two\n\n\nb: 1\n", "a: |\n    one\n\n\n    two\n\nb: 1\n"),
    ("a:   \nb: ~   # nothing\n", "a:\nb: ~   # nothing\n"),
    ("a: 'it''s'\nb: \"q\"\nc: {x: [1,  2]}\n", "a: 'it''s'\nb: \"q\"\nc: {x: [1,  2]}\n"),
    ("# one\n---\n# two\na: 1\n...\n---\nb: 2\n", "# one\n---\n# two\na: 1\n---\nb: 2\n"),
    ("--- # why\na: 1\n", "--- # why\na: 1\n"),
    ("a:\n    b: 1\n    # inner\n# outer\nc: 2\n", "a:\n  b: 1\n  # inner\n# outer\nc: 2\n"),
    ("just text\n", "just text\n"),
    ("a: 1\n...\n# the end\n", "a: 1\n# the end\n"),
    ("a: 1\n# one\n... # two\n# three\n---\nb: 1\n...\n", "a: 1\n# one\n# two\n# three\n---\nb: 1\n"),
    ("a:   # one\n  [x]   # two\n", "# one\na: [x]   # two\n"),
    ("a: # one\n  &x # two\n  b: 1\nc: *x\n", "# one\na: &x # two\n  b: 1\nc: *x\n"),
    ("--- # one\n&x # two\na: 1\n", "--- # one\n&x\n# two\na: 1\n"),
    ("&x # why\na: 1\n", "&x\n# why\na: 1\n"),
    ("b: 1\na: |\n    text", "b: 1\na: |-\n    text\n"),
    ("a: &x >+2 # why\n    text", "a: &x >-2 # why\n    text\n"),
    ("a: |\n    text\n    ", "a: |\n    text\n"),
    ("b:\n    a: |+\n\n    c: 1\n", "b:\n  a: |+\n\n  c: 1\n"),
    ("a: |+\nc: 1\n", "a: |+\nc: 1\n"),
    ("a: |\n  one\n \nb: 1\n", "a: |\n  one\n\nb: 1\n"),
    ("    a: |2\n\n      # text\n        two\n \n    b: 1\n", "a: |2\n\n  # text\n    two\n\nb: 1\n"),
    ("a: 1\n... # one\n\n---\nb: 1\n", "a: 1\n# one\n---\nb: 1\n"),
    ("a: # one\n  |\n  text\n", "# one\na: |\n  text\n"),
    ("a: |\n \n  \nb: 1\n", "a: |\n\nb: 1\n"),
    ("b: 1\n\na:\n\n\n {}\n", "b: 1\n\na: {}\n"),
    ("\n\n# nothing yet\n\n", "# nothing yet\n"),
    ("\n\n# one\n---\na: 1\n", "# one\n---\na: 1\n"),
])
def test_a_file_gets_the_expected_layout_and_keeps_it(text: str, expected: str) -> None:
    assert formatted(text) == expected
    assert formatted(expected) == expected


def test_keys_of_the_format_are_ordered_and_free_keys_are_not() -> None:
    text = (HEAD + "  nodes:\n  - cordon: true\n    selector:\n      z: a\n      b: c\n")
    assert formatted(text) == HEAD + "  nodes:\n  - selector:\n      z: a\n      b: c\n    cordon: true\n"


def test_an_alias_keeps_its_anchor_above_it() -> None:
    text = HEAD + "  models:\n  - &a\n    key: a\n    replicas: 1\n    workers: []\n  defaults: {}\n"
    text = text.replace("replicas: 1", "priority: &p 1\n    replicas: *p")
    assert judged(formatted(text)) == judged(text)
    assert formatted(text) == text, "ordering keys would set *p above &p"


def test_merge_keys_come_first() -> None:
    text = HEAD + "  models:\n  - &a {key: a, replicas: 1, workers: []}\n  - key: b\n    <<: *a\n"
    assert formatted(text).endswith("  - <<: *a\n    key: b\n")


@pytest.mark.parametrize(("text", "code"), [
    ("a: [", "FL008"), ("a: 1\na: 2\n", "FL010"), ("a:\n\tb: 1\n", "FL009"), ("? a\n: 1\n", "FL017"),
    ("%YAML 1.2\n---\na: 1\n", "FL017"), (b"\xff", "FL005"), ("a: \x07\n", "FL006"), ("a: !x 1\n", "FL012"),
])
def test_an_invalid_or_unsupported_file_is_refused(text: str | bytes, code: str) -> None:
    with pytest.raises(FleetFileError) as caught:
        formatted(text)
    assert [problem.code for problem in caught.value.problems] == [code]


def test_newlines_inside_quotes_are_kept() -> None:
    text = 'a: "one\n\n    two # no comment\n    three"\nb: \'x\n  y\'\nc: plain\n  more\n'
    assert judged(formatted(text)) == judged(text)


words = st.sampled_from(["key", "replicas", "workers", "name", "engine", "command", "x", "y-z", "spec", "models"])
leaves = st.sampled_from(["1", "true", "~", "''", '"a # b"', "text with words", "{a: 1, b: [2, 3]}", "'it''s'", "$(A)"])
notes = st.sampled_from(["", "", "", " # note", "   # other"])
blocks = st.sampled_from(["|", ">-", "|+", "|-"])


@st.composite
def layouts(draw: Any, depth: int = 2, column: int = 0) -> str:
    """A block mapping in some indentation, with comments and blank lines wherever YAML allows them."""
    pad = " " * column
    lines: list[str] = []
    for key in draw(st.lists(words, min_size=1, max_size=4, unique=True)):
        lines += draw(gaps(column))
        lines += draw(entry(f"{pad}{key}:", depth, column, in_mapping=True))
    return "\n".join(lines + draw(gaps(column)))


@st.composite
def gaps(draw: Any, column: int) -> list[str]:
    if draw(st.integers(0, 3)):
        return []
    pads = st.sampled_from([column, column, 0, column + 1])
    lines = st.builds(lambda at, number: " " * at + f"# c{number}", pads, st.integers(0, 99))
    return draw(st.lists(st.just("") | lines, max_size=3))


@st.composite
def entry(draw: Any, head: str, depth: int, column: int, *, in_mapping: bool) -> list[str]:
    kind = draw(st.sampled_from(["leaf", "literal", "mapping", "sequence"] if depth else ["leaf", "literal"]))
    step = draw(st.integers(1, 4))
    if kind == "leaf":
        return [f"{head} {draw(leaves)}{draw(notes)}"]
    if kind == "literal":
        inner = " " * (column + step)
        last = "" if draw(st.booleans()) else f"{inner}third"
        return [f"{head} {draw(blocks)}", f"{inner}first # text", f"{inner}  second", last]
    if kind == "mapping":
        return [head + draw(notes), draw(layouts(depth=depth - 1, column=column + step))]
    at = column + (draw(st.integers(0, 4)) if in_mapping else step)
    return [head + draw(notes), *draw(items(depth - 1, at))]


@st.composite
def items(draw: Any, depth: int, column: int) -> list[str]:
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        lines += draw(gaps(column))
        if draw(st.booleans()) and depth:
            spaces = draw(st.integers(1, 3))
            inner = draw(layouts(depth=depth - 1, column=column + 1 + spaces)).lstrip("\n")
            first, *rest = inner.split("\n")
            joined = not first.lstrip().startswith("#")
            dash = " " * column + "-"
            lines += [dash + " " * spaces + first.lstrip(), *rest] if joined else [dash, inner]
        else:
            lines += draw(entry(" " * column + "-", 0, column, in_mapping=False))
    return lines


@settings(max_examples=cases(40))
@given(layouts())
def test_any_layout_keeps_its_meaning_and_comments_and_is_stable_after_one_pass(text: str) -> None:
    after = formatted(text + "\n")
    assert judged(after) == judged(text + "\n")
    assert comments(after) == comments(text)
    assert formatted(after) == after


def test_each_file_is_formatted_by_itself_without_reading_its_bases() -> None:
    untidy = """\
spec:
  models: []
  policy: {maxNewReplicas: 1}   # a threshold
  cluster: {address: auto}
# stands on
extends: [ nowhere.yaml ]   # gone
metadata: {name: lab}
kind: Fleet
apiVersion: fleetctl/v1
"""
    assert format_source(SourceBytes("lab.yaml", untidy.encode())).after == """\
apiVersion: fleetctl/v1
kind: Fleet
# stands on
extends: [ nowhere.yaml ]   # gone
metadata: {name: lab}
spec:
  cluster: {address: auto}
  policy: {maxNewReplicas: 1}   # a threshold
  models: []
"""


@pytest.mark.parametrize("blank", [b"", b"\n", b" \r\n"])
def test_a_file_without_text_is_empty(blank: bytes) -> None:
    assert format_source(SourceBytes("fleet.yaml", blank)).after == ""


@pytest.mark.parametrize("space", ["\u00a0", "\u3000"])
def test_a_unicode_space_that_is_text_in_yaml_is_kept(space: str) -> None:
    assert format_source(SourceBytes("fleet.yaml", f"{space}\n".encode())).after == f"{space}\n"
