"""Reading a model from servers, hubs, buckets and folders: what is asked for, and answers that cannot be right."""

from __future__ import annotations

import gzip
import json
import os
import socket
import struct
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fleetctl.agent.weights.index import NAME, write_index
from fleetctl.sizing import origins
from fleetctl.sizing.describe import DescribeError, describe
from tests.sizing.model_server import COMMIT, Answer, Asked, hub_of, of_folder, serving
from tests.sizing.test_describe import CONFIG, LLAMA, PARAMETERS, TENSORS, header_of, write_model, write_safetensors


def message(source: str, **variables: str) -> str:
    """Return the message of a source that cannot be described."""
    with pytest.raises(DescribeError) as raised:
        describe(source, variables=variables)
    return str(raised.value)


def test_of_a_model_in_many_shards_only_headers_and_no_byte_of_a_tensor_is_read(tmp_path: Path) -> None:
    names, shards = sorted(TENSORS), len(TENSORS)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    for number, name in enumerate(names, start=1):
        write_safetensors(tmp_path / f"model-{number:05}-of-{shards:05}.safetensors", header_of({name: TENSORS[name]}))
    weight_map = {f"{name}.{part}": f"model-{number:05}-of-{shards:05}.safetensors"
                  for number, name in enumerate(names, start=1) for part in range(2_000)}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert (tmp_path / "model.safetensors.index.json").stat().st_size > 1 << 20
    told: list[tuple[int, int]] = []
    with serving(of_folder(tmp_path)) as (url, asked):
        model = describe(url, progress=lambda read, of: told.append((read, of)))
    assert model.parameters == describe(str(tmp_path)).parameters
    assert told == [(number, shards) for number in range(1, shards + 1)]
    headers = 0
    for path in tmp_path.glob("*.safetensors"):
        header = 8 + int.from_bytes(path.read_bytes()[:8], "little")
        assert max(end for name, _, end in asked.seen if name == f"/{path.name}") == header
        headers += header
    assert sum(end - begin for _, begin, end in asked.seen) < headers + (1 << 20)
    assert len(asked.seen) == 2 * shards + 3


def test_several_files_are_read_at_a_time_and_a_wrong_one_ends_all(tmp_path: Path) -> None:
    write_model(tmp_path)
    both = threading.Barrier(2)

    def together(asked: Asked) -> None:
        if asked.path.endswith(".safetensors") and asked.begin == 0:
            both.wait(timeout=300)
        asked.send_file_of(tmp_path)

    with serving(together) as (url, _):
        assert describe(url).parameters == PARAMETERS
    is_over = threading.Event()

    def one_hangs(asked: Asked) -> None:
        if asked.path.endswith("00001-of-00002.safetensors"):
            asked.send(503)
        elif asked.path.endswith(".safetensors"):
            is_over.wait(timeout=300)
        else:
            asked.send_file_of(tmp_path)

    with serving(one_hangs) as (url, _):
        assert "HTTP status 503" in message(url)
        is_over.set()


def write_gguf(path: Path, words: int, *, data: int = 1 << 20) -> int:
    """Write a GGUF file with a vocabulary of so many words; return where its tensors begin."""
    def text(value: bytes) -> bytes:
        return struct.pack("<Q", len(value)) + value

    tensors = {"token_embd.weight": (256, words), **{f"blk.0.attn_{name}.weight": (256, 256) for name in "qkvo"}}
    body = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(LLAMA) + 3)
    for key, value in LLAMA.items():
        body += text(key.encode())
        body += struct.pack("<I", 8) + text(value.encode()) if isinstance(value, str) else struct.pack("<II", 4, value)
    body += text(b"tokenizer.tokens") + struct.pack("<IIQ", 9, 8, words)
    body += b"".join(text(b"word%d" % number) for number in range(words))
    body += text(b"tokenizer.scores") + struct.pack("<IIQ", 9, 6, words) + bytes(4 * words)
    body += text(b"tokenizer.merges") + struct.pack("<IIQ", 9, 8, words) + text(b"a b") * words
    begins = 0
    for name, shape in tensors.items():
        body += text(name.encode()) + struct.pack("<IQQIQ", 2, *shape, 12, begins)
        begins += shape[0] * shape[1] // 256 * 144
    body += bytes(-len(body) % 32)
    path.write_bytes(body + bytes(max(data, begins)))
    return len(body)


@pytest.mark.parametrize("words", [1, 300, 60_000])
def test_of_a_gguf_file_no_byte_of_a_tensor_is_read_in_few_requests(tmp_path: Path, words: int) -> None:
    header = write_gguf(tmp_path / "tiny.gguf", words)
    with serving(of_folder(tmp_path)) as (url, asked):
        model = describe(f"{url}/tiny.gguf")
    assert model.vocabulary == words
    assert max(end for _, _, end in asked.seen) <= header
    assert sum(end - begin for _, begin, end in asked.seen) <= header + 8
    assert len(asked.seen) < 50


def test_an_index_of_weights_tells_the_files_of_a_server_and_names_the_revision(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf", 7)
    artifact = write_index(str(tmp_path))
    with serving(of_folder(tmp_path)) as (url, _):
        assert "a folder over HTTP cannot be listed" in message(url)
        model = describe(f"{url}/{NAME}")
        assert model.source == f"{url}@{artifact}/tiny.gguf"
        local = describe(str(tmp_path / NAME))
        assert local.model_copy(update={"source": model.source}) == model
        write_gguf(tmp_path / "tiny.gguf", 8)
        assert f"tiny.gguf has {(tmp_path / 'tiny.gguf').stat().st_size:,} bytes, and" in message(f"{url}/{NAME}")
        (tmp_path / NAME).write_text("{}")
        assert NAME in message(f"{url}/{NAME}")


def test_a_repository_of_a_hub_is_described_at_its_commit_and_the_token_goes_to_the_hub_alone(tmp_path: Path) -> None:
    write_model(tmp_path)
    with serving(of_folder(tmp_path)) as (files, files_asked), serving(
            hub_of(tmp_path, [files.replace("127.0.0.1", "localhost")])) as (hub, asked):
        model = describe("hf:org/tiny@main", variables={"HF_ENDPOINT": f"{hub}/", "HF_TOKEN": "hf_x\n"})
    assert model.source == f"hf:org/tiny@{COMMIT}"
    assert {headers.get("Authorization") for headers in asked.headers_seen} == {"Bearer hf_x"}
    assert {headers.get("Authorization") for headers in files_asked.headers_seen} == {None}
    assert not any("index.json" in name for name, _, _ in files_asked.seen), "the names of the files are known"


def test_a_gguf_file_in_a_folder_of_a_repository_is_named_with_it(tmp_path: Path) -> None:
    (tmp_path / "Q8_0").mkdir()
    write_gguf(tmp_path / "Q8_0" / "tiny.gguf", 7)

    def answer(asked: Asked) -> None:
        if asked.path.startswith("/api/"):
            names = ("config.json", "Q4_0/tiny.gguf", "Q8_0/tiny.gguf", "vae/model.safetensors")
            asked.send(200, json.dumps({"sha": COMMIT, "siblings": [{"rfilename": name} for name in names]}).encode())
        else:
            asked.send_range((tmp_path / asked.path.partition(COMMIT)[2].lstrip("/")).read_bytes())

    with serving(answer) as (hub, _):
        variables = {"HF_ENDPOINT": hub}
        assert "it has 2 GGUF files: name one with --file, such as Q4_0/tiny.gguf" in message(
            "hf:org/tiny", **variables)
        assert describe("hf:org/tiny", file="Q8_0/tiny.gguf", variables=variables).vocabulary == 7
    assert describe(str(tmp_path), file="Q8_0/tiny.gguf").vocabulary == 7


def test_a_hub_that_sends_its_small_files_whole_is_read(tmp_path: Path) -> None:
    write_model(tmp_path)
    of_hub = hub_of(tmp_path, [])
    with serving(lambda asked: asked.send(200, (tmp_path / "config.json").read_bytes())
                 if asked.path.endswith("config.json") else of_hub(asked)) as (hub, _):
        assert describe("hf:org/tiny", variables={"HF_ENDPOINT": hub}).parameters == PARAMETERS


def test_what_a_hub_refuses_says_what_may_be_wrong(tmp_path: Path) -> None:
    with serving(hub_of(tmp_path, [])) as (hub, _):
        assert "401: there is no such repository, or it needs a token in HF_TOKEN" in message(
            "hf:org/private@main", HF_ENDPOINT=hub)
        assert "404: there is no such repository or revision" in message("hf:org/tiny@nope", HF_ENDPOINT=hub)
        assert "it has no safetensors and no GGUF files" in message("hf:org/tiny", HF_ENDPOINT=hub)
        write_model(tmp_path)
        (tmp_path / "config.json").unlink()
        assert message("hf:org/tiny", HF_ENDPOINT=hub).endswith("it has no config.json")
    for body in (b"[]", b"{", b'{"sha": 7}', b'{"sha": "%s", "siblings": {}}' % COMMIT.encode(), b"{" * 100_000):
        with serving(lambda asked, body=body: asked.send(200, body)) as (hub, _):
            assert "/api/models/org/tiny/revision/main" in message("hf:org/tiny", HF_ENDPOINT=hub)
    assert "Request URL is missing" in message("hf:org/tiny", HF_ENDPOINT="hub.example.com")
    assert "HF_TOKEN has characters" in message("hf:org/tiny", HF_TOKEN="é")


def zeros(asked: Asked) -> None:
    """Send a body without an end."""
    asked.send(206 if asked.end else 200, Content_Length="", Content_Range="bytes 0-7/99999999")
    try:
        while True:
            asked.wfile.write(bytes(1 << 16))
    except OSError:  # it was left
        asked.close_connection = True


def cut_off(asked: Asked) -> None:
    asked.send(206, b"x", Content_Length="8", Content_Range="bytes 0-7/99999999")
    asked.close_connection = True


ANSWERS: dict[str, tuple[Answer, str]] = {
    "whole files": (lambda asked: asked.send(200, b"x" * 99), "does not answer to ranges"),
    "a wanted login": (lambda asked: asked.send(401), "HTTP status 401: it wants a login"),
    "an error": (lambda asked: asked.send(503), "HTTP status 503"),
    "a redirect in a circle": (lambda asked: asked.send(302, Location=asked.path), "redirects"),
    "a redirect to a file": (lambda asked: asked.send(302, Location="file:///etc/passwd"), "protocol"),
    "a redirect to nowhere": (lambda asked: asked.send(302, Location="http://[::1"), "URL"),
    "another range": (lambda asked: asked.send(206, b"x" * 8, Content_Range="bytes 9-16/99"), "answer to ranges"),
    "no size": (lambda asked: asked.send(206, b"x" * 8, Content_Range="bytes 0-7/*"), "answer to ranges"),
    "a huge size": (lambda asked: asked.send_range(b"x" * 8, Content_Range=f"bytes 0-7/{10 ** 18 - 1}"), "JSON"),
    "a size of many digits": (lambda asked: asked.send(206, b"x", Content_Range=f"bytes 0-7/{'9' * 5000}"),
                              "answer to ranges"),
    "packed bytes": (lambda asked: asked.send_range(gzip.compress(bytes(1 << 20)), Content_Encoding="gzip"),
                     "it sends gzip, and plain bytes were asked for"),
    "no end": (zeros, "more than 32 MiB"), "a body cut off": (cut_off, "peer closed connection"),
    "no HTTP": (lambda asked: asked.wfile.write(b"SSH-2.0\r\n\r\n"), "illegal status line"),
    "headers without end": (lambda asked: asked.wfile.write(b"HTTP/1.1 206 OK\r\n" + b"A: b\r\n" * 99_999),
                            "Receive buffer"),
}


@pytest.mark.parametrize("what", ANSWERS)
def test_an_answer_that_is_not_what_was_asked_for_is_a_message(what: str) -> None:
    answer, says = ANSWERS[what]
    with serving(answer) as (url, _):
        found = message(url)
    assert found.startswith(url)
    assert says in found
    assert len(found) < 500


def test_a_file_that_changes_while_it_is_read_or_ends_early_is_a_message(tmp_path: Path) -> None:
    write_model(tmp_path)
    sizes = iter(range(50_000, 90_000))
    with serving(lambda asked: asked.send_range(bytes(next(sizes)))) as (url, _):
        assert "changed while it was read" in message(url)

    def half(asked: Asked) -> None:
        asked.send_file_of(tmp_path) if asked.begin < 8 else asked.send_range(
            (tmp_path / asked.path[1:]).read_bytes()[:asked.end // 2], Content_Range=(
                f"bytes {asked.begin}-{asked.end - 1}/{(tmp_path / asked.path[1:]).stat().st_size}"))

    with serving(half) as (url, _):
        assert "ends within its header" in message(url)


def test_a_server_that_sends_a_byte_now_and_then_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origins, "MOST_S", 0.3)
    is_left = threading.Event()

    def drip(asked: Asked) -> None:
        try:
            asked.wfile.write(b"HTTP/1.1 206 OK\r\n")
            while not is_left.wait(0.02):
                asked.wfile.write(b"A: b\r\n")
        except OSError:
            is_left.set()
        asked.close_connection = True

    with serving(drip) as (url, _):
        try:
            assert "not all of it came within" in message(url)
        finally:
            is_left.set()


def test_a_login_and_a_query_of_a_url_are_used_and_shown_nowhere(tmp_path: Path) -> None:
    write_model(tmp_path)
    with serving(of_folder(tmp_path)) as (url, asked):
        secret = url.replace("://", "://ana:hush@")
        model = describe(f"{secret}/models/tiny/?token=hush")
        assert model.source == f"{url}/models/tiny"
        assert all(name.endswith("?token=hush") for name, _, _ in asked.seen)
        assert {headers["Authorization"] for headers in asked.headers_seen} == {"Basic YW5hOmh1c2g="}
        (tmp_path / "config.json").unlink()
        assert "hush" not in message(f"{secret}/models/tiny?token=hush")
    assert "hush" not in message(f"{secret}/models/tiny?token=hush")
    assert "hush" not in message("http://ana:hush@[::1/?token=hush")


def test_a_proxy_is_asked_and_named_without_its_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model(tmp_path)
    with serving(of_folder(tmp_path)) as (proxy, asked):
        monkeypatch.setenv("HTTP_PROXY", proxy)
        assert describe("http://models.example.com/tiny").layers
        assert asked.seen[0][0] == "http://models.example.com/tiny/model.safetensors.index.json"
        monkeypatch.setenv("NO_PROXY", "127.0.0.0/8")
    monkeypatch.setenv("HTTP_PROXY", proxy.replace("://", "://ana:hush@"))
    found = message("http://models.example.com/tiny")
    assert f"through the proxy {proxy.replace('://', '://***@')} (HTTP_PROXY)" in found
    assert "hush" not in found
    monkeypatch.setenv("HTTP_PROXY", "gopher://proxy")
    assert "gopher://proxy (HTTP_PROXY)" in message("http://models.example.com/tiny")


class Bucket:
    """A file system of fsspec with one bucket, `lab`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.asked = folder, list[tuple[str, int, int]]()

    def _path(self, path: str) -> Path:
        bucket, _, name = path.partition("/tiny")
        if bucket != "lab":
            raise FileNotFoundError("The specified\nbucket does not exist")
        return self.folder / name.lstrip("/")

    def ls(self, path: str, detail: bool) -> list[str]:
        return [f"{path}/{file.name}" for file in self._path(path).iterdir()]

    def exists(self, path: str) -> bool:
        return self._path(path).exists()

    def size(self, path: str) -> int:
        return self._path(path).stat().st_size

    def cat_file(self, path: str, start: int, end: int) -> bytes:
        self.asked.append((path, start, end))
        return self._path(path).read_bytes()[start:end]


def test_a_bucket_is_read_by_ranges_and_its_errors_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_model(tmp_path)
    bucket = Bucket(tmp_path)
    monkeypatch.setitem(sys.modules, "fsspec", SimpleNamespace(filesystem={"s3": bucket}.__getitem__))
    local = describe(str(tmp_path))
    for source in ("s3://lab/tiny", "s3:lab/tiny/"):
        assert describe(source) == local.model_copy(update={"source": "s3://lab/tiny"})
    artifact = write_index(str(tmp_path))
    assert describe(f"s3://lab/tiny/{NAME}").source == f"s3://lab/tiny@{artifact}"
    assert sum(end - start for path, start, end in bucket.asked if path.endswith(".safetensors")) < 3 * 5_000
    assert message("s3://other/tiny") == (
        "s3://other/tiny: there is no such folder or file: The specified bucket does not exist")
    monkeypatch.setitem(sys.modules, "fsspec", SimpleNamespace(filesystem={}.__getitem__))
    assert message("s3://lab/tiny").startswith("s3://lab/tiny: ")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    assert "needs the Python package s3fs" in message("s3://lab/tiny")


def test_what_in_a_folder_is_no_regular_file_of_it_is_not_read(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    write_model(folder)
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")
    assert "it has no config.json" in message(str(folder))
    (folder / "config.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (folder / "config.json").symlink_to(tmp_path / "config.json")
    assert "config.json is a link that leaves the folder" in message(str(folder))
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to("config.json")
    assert "it has no config.json" in message(str(folder))
    (folder / "config.json").unlink()
    with (folder / "config.json").open("wb") as file:
        file.truncate(1 << 30)
    assert "config.json has 1,073,741,824 bytes, and at most" in message(str(folder))
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        assert "neither a folder nor a regular file" in message(str(tmp_path / "s"))
    assert "neither a folder nor a regular file" in message("/dev/zero")


def test_a_snapshot_in_a_cache_of_hugging_face_is_named_by_its_repository(tmp_path: Path) -> None:
    snapshot, blobs = (tmp_path / "models--org--tiny" / part for part in (f"snapshots/{COMMIT}", "blobs"))
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    write_model(blobs)
    for path in blobs.iterdir():
        (snapshot / path.name).symlink_to(Path("../../blobs") / path.name)
    assert describe(str(snapshot)).source == f"hf:org/tiny@{COMMIT}"


@pytest.mark.parametrize("name", [
    "../model.safetensors", "/etc/passwd", ".hidden.safetensors", "a" * 5000, "a\0b", "\ud800"])
def test_a_list_of_shards_names_files_beside_it(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    write_safetensors(tmp_path / "model.safetensors", header_of(TENSORS))
    (folder / "config.json").write_text(json.dumps(CONFIG))
    listed: dict[str, Any] = {"weight_map": {"a": name}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(listed))
    found = message(str(folder))
    assert "is not the name of a file beside it" in found
    assert len(found) < 300 + len(str(folder))
