from __future__ import annotations

import pytest

from fleetctl.documents.names import nearest
from fleetctl.fleetfile import guess
from fleetctl.fleetfile.keys import homes


@pytest.mark.parametrize(("text", "meant"), [
    ("16GB", "16G"), ("16 gib", "16Gi"), ("16gi", "16Gi"), ("500mb", "500M"), ("1.5tib", "1.5Ti"), ("8K", "8k"),
    ("8kib", "8Ki"), ("16", None), ("16X", None), ("x", None), ("GB", None), ("99999999EiB", None),
])
def test_invalid_bytes_have_a_likely_meaning(text: str, meant: str | None) -> None:
    assert guess.bytes_meant(text) == meant


@pytest.mark.parametrize(("text", "meant"), [
    ("12.5", "12.5"), (" $0.80 / hour", "0.80"), ("EUR 3", "3"), ("4/h", "4"), ("-3", None), ("1,200", None),
    ("a lot", None), ("1.2345678", None), ("3 to 4", None),
])
def test_prices_with_a_currency_have_a_likely_meaning(text: str, meant: str | None) -> None:
    assert guess.price_meant(text) == meant


@pytest.mark.parametrize(("text", "meant"), [
    ("30", "30s"), ("30 sec", "30s"), ("5min", "5m"), ("2 hours", "2h"), ("100 MS", "100ms"), ("soon", None),
    ("400 d", None),
])
def test_invalid_durations_have_a_likely_meaning(text: str, meant: str | None) -> None:
    assert guess.duration_meant(text) == meant


@pytest.mark.parametrize(("text", "meant"), [
    ("a|b", '"in(a, b)"'), ("[a, b]", '"in(a, b)"'), ("a,b", '"in(a, b)"'), ("!=a", '"!a"'), ("== a", "a"),
    ("not a", '"!a"'), ("a b", None), ("", None),
])
def test_invalid_selectors_have_a_likely_meaning(text: str, meant: str | None) -> None:
    assert guess.selector_meant(text) == meant


@pytest.mark.parametrize("text", ["in(a", "in(a,"])
def test_a_selector_split_by_a_flow_mapping_needs_quotes(text: str) -> None:
    assert guess.selector_meant(text) == 'in(a), or "in(a, b)" in quotes because of the comma'


@pytest.mark.parametrize(("text", "meant"), [
    ("in(a, b", '"in(a, b)"'), ("!in(a,b,", '"!in(a,b)"'), ("in(", None), ("in(a b", None), ("in((a", None),
])
def test_the_suggestion_for_a_truncated_selector_is_valid(text: str, meant: str | None) -> None:
    assert guess.selector_meant(text) == meant


@pytest.mark.parametrize(("text", "meant"), [
    ("vllm serve org/x --port 8000", '[vllm, serve, org/x, --port, "8000"]'), ("run 'a b' $(A)", '[run, "a b", $(A)]'),
    ("it's", None), (" ", None), ("x" * 300, None),
])
def test_command_lines_as_text_have_a_likely_list(text: str, meant: str | None) -> None:
    assert guess.words_meant(text) == meant


@pytest.mark.parametrize(("text", "meant"), [
    ("20000", "20000-20000"), ("20000:20063", "20000-20063"), ("20000 - 20063", "20000-20063"), ("80", None),
    ("20063-20000", None), ("1 2 3", None), ("off", None),
])
def test_ports_that_are_no_range_have_a_likely_range(text: str, meant: str | None) -> None:
    assert guess.ports_meant(text) == meant


@pytest.mark.parametrize(("text", "meant"), [("My Lab", "my-lab"), ("-", None), ("A_b.", "a-b")])
def test_invalid_dns_labels_have_a_likely_name(text: str, meant: str | None) -> None:
    assert guess.dns_label_meant(text) == meant


@pytest.mark.parametrize(("word", "meant"), [
    ("node_selector", "nodeSelector"), ("nodeselector", "nodeSelector"), ("node-selector", "nodeSelector"),
    ("nodeSelectr", "nodeSelector"), ("enigne", "engine"), ("banana", None),
])
def test_the_nearest_key_of_a_misspelled_one_is_found(word: str, meant: str | None) -> None:
    assert nearest(word, ["role", "count", "resources", "nodeSelector", "engine"]) == meant


def test_the_parents_of_a_key_are_known() -> None:
    assert homes()["gpus"] == ("node", "quotas", "resources")
    assert homes()["sameLabel"] == ("placement",)
