"""Entries of a large JSON object, read while it arrives: each once, in bounded memory, none lost silently."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence

import pytest
from fake_dashboard import FakeDashboard, cut_off, status
from hostile_dashboard import Endless, drip, in_parts
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.errors import ClusterRefused, InventoryError
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.fetch import Bounds
from fleetctl.inventory.json_values import MAX_VALUES, entries_within, limit_values, parse_text
from fleetctl.problem import as_utf8

WITHIN = ("data", "actors")
PATH = "/logical/actors"
JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
                    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
                    max_leaves=8)


def read(body: bytes, *, step: int = 3, within: Sequence[str] = WITHIN, entry_chars: int = 1 << 20) -> list[object]:
    return list(entries_within(in_steps(body, step), within, "{", entry_chars, {}))


def read_list(body: bytes, step: int, beside: dict[str, object] | None = None) -> list[object]:
    parts = in_steps(body, step)
    return [value for _, value in entries_within(parts, WITHIN, "[", 1 << 20, {} if beside is None else beside)]


def in_steps(body: bytes, step: int) -> Iterator[bytes]:
    return (body[at:at + step] for at in range(0, len(body), step))


def answered(entries: object, **beside: object) -> dict[str, object]:
    return {"result": True, "msg": "", **beside, "data": {"before": [1, {"x": "}"}], "actors": entries, "after": 1.5}}


@given(entries=st.dictionaries(st.text(), JSON, max_size=6), step=st.integers(1, 40), ascii_only=st.booleans(),
       indent=st.none() | st.integers(0, 3))
def test_the_entries_are_those_of_the_whole_document(
    entries: dict[str, object], step: int, ascii_only: bool, indent: int | None
):
    body = json.dumps(answered(entries), ensure_ascii=ascii_only, indent=indent)
    assert read(body.encode("utf-8", errors="surrogatepass") if ascii_only else body.encode(), step=step) == list(
        entries.items())


ESCAPES = st.sampled_from(["\\ud83d", "\\ude00", "\\uD800", "\\uDFFF", "\\\\", "\\n", "u", "\\u0041", "d83d", '\\"'])


@given(parts=st.lists(ESCAPES), step=st.integers(1, 12))
def test_half_a_surrogate_pair_is_written_out_and_all_else_stays(parts: list[str], step: int):
    literal = f'"{"".join(parts)}"'
    expected = as_utf8(json.loads(literal))
    [(_, found)] = read(f'{{"data": {{"actors": {{"a": {literal}}}}}}}'.encode(), step=step)
    assert str(found).lower() == str(parse_text(literal)).lower() == expected.lower()
    assert str(found).encode().decode() == found


@given(step=st.integers(1, 12), data=st.data())
def test_a_document_cut_off_anywhere_is_an_error(step: int, data: st.DataObject):
    body = json.dumps(answered({"a": {"n": 1}, "b": [2, "ü"]}), ensure_ascii=False).encode()
    with pytest.raises(ValueError):  # noqa: PT011  a cut in a character is a UnicodeDecodeError
        read(body[:data.draw(st.integers(0, len(body) - 1))], step=step)


@pytest.mark.parametrize(("body", "words"), [
    (b"", "unexpected end"),
    (b"[1, 2]", "expected {"),
    (b'{"data": {"actors": [1]}}', "expected {"),
    (b'{"data": {}}', "answered without actors"),
    (b"{}", "answered without data"),
    (b'{"data": {"actors": {}}, "data": {}}', "data twice"),
    (b'{"result": false, "msg": "no", "data": {}}', "failed in the cluster: no"),
    (b'{"data": {"actors": {"a": 1 "b": 2}}}', "no comma after"),
    (b'{"data": {"actors": {"a" 1}}}', "expected :"),
    (b'{"data": {"actors": {1: 1}}}', "not a string"),
    (b'{"data": {"actors": {"a": 1,}}}', "not a string"),
    (b'{"data": {"actors": {"a": 1.}, "and": "much more behind it"}}', "no comma after"),
    (b'{"data": {"actors": {"a": 1}}} {}', "text after its end"),
    (b'{"data": {"actors": {"a": nope, "and": "much more behind it"}}}', "Expecting value"),
    (b'{"data": {"actors": {"a": "\xff"}}}', "utf-8"),
    (b'{"data": {"actors": {"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}}", "deep"),
    (b'{"data": {"actors": {"a": "' + b"x" * (2 << 20) + b'"}}}', "more than 1 MiB"),
    (b'{"skipped": "' + b"x" * (2 << 20), "more than 1 MiB"),
])
def test_another_document_is_an_error_with_the_reason(body: bytes, words: str):
    with pytest.raises(ValueError, match=words):
        read(body, step=64 << 10)


@given(items=st.lists(JSON, max_size=6), step=st.integers(1, 40), indent=st.none() | st.integers(0, 3))
def test_the_items_of_a_list_are_those_of_the_whole_document_and_what_is_beside_is_kept(
    items: list[object], step: int, indent: int | None
):
    body = json.dumps(answered(items, total=7), indent=indent).encode()
    beside: dict[str, object] = {}
    assert read_list(body, step, beside) == items
    assert beside == {"result": True, "msg": "", "total": 7, "before": [1, {"x": "}"}], "after": 1.5}


@given(step=st.integers(1, 12), data=st.data())
def test_a_list_that_is_cut_off_anywhere_is_an_error(step: int, data: st.DataObject):
    body = json.dumps(answered([{"n": 1}, 2, "ü"]), ensure_ascii=False).encode()
    with pytest.raises(ValueError):  # noqa: PT011
        read_list(body[:data.draw(st.integers(0, len(body) - 1))], step)


@pytest.mark.parametrize(("body", "words"), [
    (b'{"data": {"actors": {"a": 1}}}', r"expected \["),
    (b'{"data": {"actors": [1 2]}}', "no comma after"),
    (b'{"data": {"actors": [1,], "and": "much more behind it"}}', "Expecting value"),
    (b'{"data": {}}', "answered without actors"),
    (b'{"result": false, "data": {"actors": [1]}, "msg": "GCS is down"}', "failed in the cluster: GCS is down"),
])
def test_another_list_is_an_error_with_the_reason(body: bytes, words: str):
    with pytest.raises(ValueError, match=words):
        read_list(body, 5)


def test_too_many_values_are_an_error():
    parts = [b"[" * (1 << 20)] * (MAX_VALUES // (1 << 20) + 2)
    with pytest.raises(ValueError, match="too many"):
        list(limit_values(iter(parts)))


def test_a_damaged_entry_ends_the_reading_without_reading_on():
    def parts() -> Iterator[bytes]:
        yield b'{"data": {"actors": {"a": [1, oops, ' + b" " * 100
        raise AssertionError("read on")

    with pytest.raises(ValueError, match="Expecting value"):
        list(entries_within(parts(), WITHIN, "{", 1 << 20, {}))


@pytest.mark.slow
def test_memory_does_not_grow_with_the_answer(dashboard: FakeDashboard):
    entry = json.dumps({"actorId": "0" * 32, "state": "ALIVE", "environment": "x" * 1900, "pid": 1})
    count = (60 << 20) // len(entry)

    def body() -> Iterator[bytes]:
        yield b'{"result": true, "msg": "", "data": {"actors": {'
        for number in range(count):
            yield f'{"," if number else ""}"{number}": {entry}'.encode()
        yield b"}}}"

    dashboard.behaviours[PATH] = in_parts(body())
    program = """
import resource, sys
from fleetctl.inventory.client import DashboardClient
client = DashboardClient(sys.argv[1])
client.get_json("/api/version")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found, _ = client.read_entries("/logical/actors", ("data", "actors"), {}, lambda _, entry: entry["pid"], opening="{",
                               large=True)
print(sum(found), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run([sys.executable, "-c", program, dashboard.url], capture_output=True, text=True, timeout=240,
                          check=True)
    read_entries, grown_kib = map(int, done.stdout.split())
    assert read_entries == count
    assert grown_kib < 20 << 10


def entries_of(dashboard: FakeDashboard, **bounds: float) -> list[tuple[str, object]]:
    with DashboardClient(dashboard.url, bounds=Bounds(**bounds), sleep=lambda _: None) as client:
        return client.read_entries(PATH, WITHIN, {}, lambda key, value: (key, value), opening="{", large=True)[0]


def test_the_client_reads_each_entry_that_the_dashboard_answers(dashboard: FakeDashboard):
    dashboard.bodies[PATH] = answered({"a": {"state": "ALIVE"}, "b": {}})
    assert entries_of(dashboard) == [("a", {"state": "ALIVE"}), ("b", {})]


@pytest.mark.parametrize(("behaviour", "words"), [
    (cut_off, "was cut off"),
    (status(500, b'{"msg": "GCS is down"}'), "answered 500: GCS is down"),
    (status(404), "does not exist"),
    (status(200, b"<html>"), "not with complete JSON"),
])
def test_a_stream_that_fails_is_an_error_like_any_answer(dashboard: FakeDashboard, behaviour, words: str):
    dashboard.behaviours[PATH] = behaviour
    with pytest.raises(InventoryError, match=words):
        entries_of(dashboard)


@pytest.mark.parametrize("code", [401, 403])
def test_a_stream_that_is_refused_says_so(dashboard: FakeDashboard, code: int):
    dashboard.behaviours[PATH] = status(code)
    with pytest.raises(ClusterRefused, match=str(code)):
        entries_of(dashboard)


def test_a_stream_has_its_own_bounds(dashboard: FakeDashboard):
    dashboard.behaviours[PATH] = Endless()
    with pytest.raises(InventoryError, match="more than 2 MiB"):
        entries_of(dashboard, stream_bytes=2 << 20, answer_bytes=1)
    dashboard.behaviours[PATH] = drip(dashboard, b'HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n{"data": ')
    with pytest.raises(InventoryError, match=r"did not finish its answer to /logical/actors within 0\.3 s"):
        entries_of(dashboard, stream_s=0.3, total_s=0.1)


def test_a_stream_that_is_left_early_is_closed(dashboard: FakeDashboard):
    endless = Endless()

    def begun(handler) -> None:
        handler.wfile.write(b'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{"data": {"actors": {"a": 1, ')
        endless(handler)

    dashboard.behaviours[PATH] = begun
    with DashboardClient(dashboard.url) as client:
        def read(key: str, value: object) -> None:
            assert (key, value) == ("a", 1)
            raise InventoryError("enough")

        with pytest.raises(InventoryError, match="enough"):
            client.read_entries(PATH, WITHIN, {}, read, opening="{", large=True)
        assert endless.over.wait(30)
    assert endless.sent < 64 << 20
