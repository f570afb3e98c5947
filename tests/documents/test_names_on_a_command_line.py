"""What a name on a command line means: a key, the checkpoint of an NDIF key, a replica; and commands with names."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_keys import CHECKPOINT, NDIF_KEY, model_keys

from fleetctl.documents.names import checkpoint_of, command_line, did_you_mean, revision_of, served_name_in, with_key
from fleetctl.errors import UsageError

AT_STEP = 'LanguageModel:{"repo_id": "EleutherAI/pythia-70m", "revision": "step1000"}'
VISION = NDIF_KEY.replace("Language", "nnsight.modeling.vlm.VisionLanguage")


@pytest.mark.parametrize(("key", "checkpoint", "revision", "served"), [
    (NDIF_KEY, CHECKPOINT, None, CHECKPOINT),
    (NDIF_KEY.replace('", "', '","').replace('": "', '":"'), CHECKPOINT, None, CHECKPOINT),
    (AT_STEP, "EleutherAI/pythia-70m", "step1000", "EleutherAI/pythia-70m@step1000"),
    ('a.b.C:{"repo_id": "x", "revision": null}', "x", None, "x"),
    ('C:{"repo_id": "x:{y"}', "x:{y", None, "x:{y"),
    ("org/m:turbo", None, None, None), ("org/m", None, None, None), ("C:{}", None, None, None),
    ('C:{"repo_id": 3}', None, None, None), ('C:{"repo_id": ""}', None, None, None),
    ('C:{"repo_id": "x"', None, None, None),
    ('C:{"repo_id": "x"} and more', None, None, None), ("C:" + "{" * 400, None, None, None), ("C:{[", None, None, None),
])
def test_a_key_of_ndif_holds_a_checkpoint_and_any_other_key_none(
        key: str, checkpoint: str | None, revision: str | None, served: str | None) -> None:
    assert (checkpoint_of(key), revision_of(key), served_name_in(key)) == (checkpoint, revision, served)


@pytest.mark.parametrize(("name", "meant"), [
    (CHECKPOINT, NDIF_KEY), (f"{CHECKPOINT}/3", f"{NDIF_KEY}/3"), ("EleutherAI/pythia-70m/12", f"{AT_STEP}/12"),
    (NDIF_KEY, NDIF_KEY), (f"{NDIF_KEY}/0", f"{NDIF_KEY}/0"), ("gpt2", "gpt2"), (f"{CHECKPOINT}/x", f"{CHECKPOINT}/x"),
    (f"{CHECKPOINT}/", f"{CHECKPOINT}/"), ("/3", "/3"), ("", ""),
])
def test_a_checkpoint_means_the_only_key_that_holds_it(name: str, meant: str) -> None:
    assert with_key(name, [NDIF_KEY, AT_STEP, "org/m"]) == meant


def test_a_key_means_itself_even_if_another_key_holds_it() -> None:
    keys = [NDIF_KEY, CHECKPOINT]
    assert [with_key(name, keys) for name in (CHECKPOINT, f"{CHECKPOINT}/1")] == [CHECKPOINT, f"{CHECKPOINT}/1"]


@pytest.mark.parametrize("end", ["", "/2"])
def test_the_checkpoint_of_several_keys_is_refused_with_all_of_them(end: str) -> None:
    with pytest.raises(UsageError, match="is the checkpoint of 2 models") as raised:
        with_key(CHECKPOINT + end, [VISION, "org/m", NDIF_KEY])
    assert raised.value.hint is not None
    listed = raised.value.hint.removeprefix("write one of these: ")
    assert shlex.split(listed) == [NDIF_KEY + end, VISION + end]


def test_of_several_keys_the_only_one_of_the_own_fleet_is_meant() -> None:
    keys = [VISION, NDIF_KEY, AT_STEP]
    assert with_key(f"{CHECKPOINT}/2", keys, [NDIF_KEY, AT_STEP]) == f"{NDIF_KEY}/2"
    assert with_key("EleutherAI/pythia-70m", keys, [NDIF_KEY]) == AT_STEP
    assert with_key(CHECKPOINT, [CHECKPOINT, *keys], [NDIF_KEY]) == CHECKPOINT, "a key means itself"
    with pytest.raises(UsageError):
        with_key(CHECKPOINT, keys, [NDIF_KEY, VISION])


def test_a_checkpoint_that_ends_like_an_id_is_refused_if_it_may_mean_a_replica() -> None:
    longer = NDIF_KEY.replace("gpt2", "gpt2/3")
    with pytest.raises(UsageError, match="is the checkpoint of 2 models"):
        with_key(f"{CHECKPOINT}/3", [NDIF_KEY, longer])
    assert with_key(f"{CHECKPOINT}/3", [longer]) == longer


@given(model_keys, st.lists(model_keys, max_size=3))
def test_a_key_and_its_replica_mean_themselves(key: str, others: list[str]) -> None:
    assert with_key(key, [*others, key]) == key
    if f"{key}/3" not in others:
        assert with_key(f"{key}/3", [*others, key]) == f"{key}/3"


@given(st.lists(model_keys, min_size=1, max_size=3))
def test_a_shown_command_has_exactly_the_names(names: list[str]) -> None:
    words = shlex.split(command_line("fleetctl evict", names, "--drain 30s -f 'a b'"))
    assert words[:2] == ["fleetctl", "evict"]
    assert sorted(words[2:]) == sorted([*names, "--drain", "30s", "-f", "a b", *["--"] * ("--" in words[2:])])
    if any(name.startswith("-") for name in names):
        assert words[words.index("--") + 1:] == names


def test_a_hint_quotes_the_name_and_knows_the_checkpoint() -> None:
    assert did_you_mean(CHECKPOINT, [NDIF_KEY, "org/m"]) == f"did you mean {shlex.quote(NDIF_KEY)}?"
    assert did_you_mean("org/n", ["org/m"]) == "did you mean org/m?"
