"""No cache is used again across any difference: 10,000 mutated keys, each against a whole snapshot of the original."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from caches_world import ENGINE, Fleet

from fleetctl.agent.caches import door, key
from fleetctl.agent.caches.folder import OwnFolder, Snapshot
from fleetctl.agent.caches.key import CacheKey, hashed, line_of, of_node
from fleetctl.agent.caches.snapshot import CacheError, fill, scan, take
from fleetctl.agent.cards import CardCheck
from fleetctl.agent.messages import Member, PlannedWeights

SECRET = b"secret"
KEY = CacheKey(
    form=key.FORM, fleet="lab", namespace="fleet", model="org/m", seat=("main", "Standalone", "0", "1"),
    caches=("VLLM_CACHE_ROOT", "TRITON_CACHE_DIR"), folder="/cache/caches/0123456789abcdef/0/files",
    command=("vllm", "serve", "m", "--port", "$(FLEETCTL_PORT)"), workdir="",
    env=hashed({"env A": "1", "CC": "gcc"}, SECRET), weights="", claim=(10_000, 20_000), engine="vllm 0.11.0",
    program="/venv/bin/vllm", packages={"torch": "2.9.0", "triton": "3.5.0", "vllm": "0.11.0"},
    cards=("NVIDIA L4 8.9 23034Mi",), driver="570.86.10", cpu="x86_64", flags=("avx2", "avx512f", "fma"),
    libc="glibc 2.36")


def other_text(text: str, rng: random.Random) -> str:
    """Return another text, close to this one."""
    at = rng.randrange(len(text) + 1)
    sign = rng.choice("aZ0 .,:\"\\\n\u00e9")
    changed = [text[:at] + sign + text[at:], text[:at], text[at:], text.upper(), text + text]
    return rng.choice([one for one in changed if one != text] or [text + "x"])


def mutated(value: Any, rng: random.Random) -> Any:
    """Return another value of the same kind, with one difference."""
    if isinstance(value, str):
        return other_text(value, rng)
    if isinstance(value, int):
        return value + rng.choice([-1, 1, 10, -value - 1, value + 1])
    if isinstance(value, dict):
        rows = dict(value)
        name = rng.choice(sorted(rows))
        kind = rng.randrange(3)
        if kind == 0:
            del rows[name]
        elif kind == 1:
            rows[name] = other_text(rows[name], rng)
        else:
            rows[other_text(name, rng)] = rows[name]
        return rows
    rows = list(value)
    kind, at = rng.randrange(4), rng.randrange(len(rows)) if rows else 0
    if kind == 0 and rows:
        del rows[at]
    elif kind == 1 and len(set(rows)) > 1:
        while rows == list(value):
            rng.shuffle(rows)
    elif kind == 2 and rows:
        rows[at] = mutated(rows[at], rng)
    else:
        rows.insert(at, rows[at] if rows else "x")
    return tuple(rows)


def test_no_snapshot_is_used_with_any_of_10_000_mutated_keys(tmp_path: Path) -> None:
    made, root = tmp_path / "made" / "files", tmp_path / "root"
    for name in KEY.caches:
        (made / name).mkdir(parents=True)
        (made / name / "kernel.so").write_bytes(b"code")
    entry = take(str(root), str(made), KEY, scan(str(made)), SECRET)
    own = OwnFolder(str(tmp_path / "own"), -1)
    (tmp_path / "own").mkdir()
    own.record(Snapshot(entry.artifact, KEY.digest, 1, 1, "now"), SECRET)
    (tmp_path / "into").mkdir()
    rng, seen, filled = random.Random(38), set[str](), 0
    for number in range(10_000):
        field = KEY._fields[number % len(KEY._fields)]
        other = KEY._replace(**{field: mutated(getattr(KEY, field), rng)})
        assert own.snapshot(other, SECRET) is None, field
        seen.add(other.digest)
        if number % 19 == 0:  # as if somebody offered it under another digest
            with pytest.raises(CacheError, match="another key"):
                fill(str(tmp_path / "into" / "files"), entry, other, 1e18)
            filled += 1
    assert KEY.digest not in seen
    assert (filled, len(seen) > 1_000) == (527, True)
    assert list((tmp_path / "into").iterdir()) == []
    assert own.snapshot(KEY, SECRET) is not None
    assert own.snapshot(KEY, b"of another session") is None
    assert len(fill(str(tmp_path / "into" / "files"), entry, KEY, 1e18)) == 2


def the_key(monkeypatch: pytest.MonkeyPatch, member: Member, fleet: str = "lab", number: int = 0, node: str = "a",
            namespace: str = "fleet", **env: str) -> CacheKey:
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(namespace=namespace))
    monkeypatch.setattr(door, "node_environment", lambda: {"PATH": "/usr/bin:/bin", **env})
    injected = {"FLEETCTL_MODEL": "m", "FLEETCTL_REPLICA_ID": str(number), "FLEETCTL_PORT": str(8000 + number),
                "FLEETCTL_PORT_NIXL": str(9000 + number), "FLEETCTL_NODE": node, "FLEETCTL_GROUP_SIZE": "1",
                "FLEETCTL_RANK": "0", "FLEETCTL_HOST": f"10.0.0.{number}", "FLEETCTL_COPY": "0",
                "FLEETCTL_MODEL_DIR": "/weights/1"}
    return door.key_of(member, injected, fleet, CardCheck(), SECRET)[1]


def of(**more: Any) -> Member:
    engine = ENGINE._replace(command=("sh", "serve"), args=("--port", "$(FLEETCTL_PORT)", "--x", "$(FLEETCTL_NODE)"))
    return Member("main", 0, "Standalone", 0, "n", "n", engine=engine._replace(**more))


def test_replicas_of_a_spec_have_one_key_and_any_other_difference_has_another(monkeypatch: pytest.MonkeyPatch) -> None:
    own = of(env={"URL": "http://$(FLEETCTL_HOST):$(FLEETCTL_PORT_NIXL)", "DIR": "$(HOME)/x"})
    first = the_key(monkeypatch, own)
    assert the_key(monkeypatch, own, number=7, node="b").digest == first.digest
    assert the_key(monkeypatch, own, HOSTNAME="b", CUDA_VISIBLE_DEVICES="3").digest == first.digest
    others = [
        the_key(monkeypatch, own, "other"), the_key(monkeypatch, own, namespace="other"),
        the_key(monkeypatch, own, CC="clang"), the_key(monkeypatch, own, TRITON_DEBUG="1"),
        the_key(monkeypatch, own, TVM_FFI_CUDA_ARCH_LIST="9.0"),
        the_key(monkeypatch, own._replace(engine=own.engine._replace(args=("--port", "$(FLEETCTL_PORT)")))),
        the_key(monkeypatch, own._replace(engine=own.engine._replace(env={**own.engine.env, "A": "1"}))),
        the_key(monkeypatch, own._replace(engine=own.engine._replace(version=("echo", "2")))),
        the_key(monkeypatch, own._replace(engine=own.engine._replace(caches=("VLLM_CACHE_ROOT",)))),
        the_key(monkeypatch, own._replace(rank=1, role="Worker")), the_key(monkeypatch, own._replace(group="other")),
        the_key(monkeypatch, own._replace(cpus=40_000)), the_key(monkeypatch, own._replace(gpus=10_000)),
        the_key(monkeypatch, own._replace(weights=PlannedWeights("a" * 64, ()))),
        the_key(monkeypatch, own._replace(weights=PlannedWeights("a" * 64, (), view={"files": "x"}))),
    ]
    assert len({first.digest, *(other.digest for other in others)}) == len(others) + 1


def test_the_folder_with_weights_is_in_the_key_and_a_secret_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    own = of(args=("$(FLEETCTL_MODEL_DIR)", "$$(FLEETCTL_PORT)"), env={"HF_TOKEN": "hush-hush"})
    found = the_key(monkeypatch, own)
    assert found.command == ("sh", "serve", "/weights/1", "$$(FLEETCTL_PORT)")
    assert b"hush-hush" not in found.canonical()
    other = hashed({"env HF_TOKEN": "hush-hush"}, b"of another session")
    assert {**found.env}.items() >= hashed({"env HF_TOKEN": "hush-hush"}, SECRET).items()
    assert not {**found.env}.items() & other.items()


def test_a_variable_of_the_node_that_is_no_text_has_a_hash_too() -> None:
    """As `os.environ` has it: each byte that is not UTF-8 is half of a surrogate pair."""
    found = hashed({"env A": "\udcff", "env B": "\udcfe"}, SECRET)
    assert found["env A"] != found["env B"]
    assert {len(text) for text in found.values()} == {32}


def test_a_line_keeps_what_tells_replicas_apart() -> None:
    line = ["$(FLEETCTL_PORT_A)", "$(FLEETCTL_MODEL)/$(HOME)", "$(OWN)", "$(UNKNOWN)", "$$(HOME)"]
    known = {"FLEETCTL_PORT_A": "1", "FLEETCTL_MODEL": "m", "HOME": "/root", "OWN": "2"}
    assert line_of(line, known, {"OWN": ""}) == (
        "$(FLEETCTL_PORT_A)", "m//root", "$(OWN)", "$(UNKNOWN)", "$$(HOME)")


def test_of_a_node_only_what_compilers_and_engines_read_counts() -> None:
    node = {"CC": "gcc", "VLLM_USE_V1": "1", "TORCHINDUCTOR_X": "1", "HOME": "/", "CUDA_VISIBLE_DEVICES": "0",
            "VLLM_CACHE_ROOT": "/x"}
    assert of_node(node, ["VLLM_CACHE_ROOT"]) == {"CC": "gcc", "VLLM_USE_V1": "1", "TORCHINDUCTOR_X": "1"}


def test_another_fleet_namespace_or_node_type_compiles_itself(fleet: Fleet) -> None:
    first = fleet.start(0, "a")
    compiled = first.watch().compile()
    first.offered()
    assert fleet.start(1, "b", fleet="other").files() == {}
    assert fleet.start(2, "c", namespace="other").files() == {}
    assert fleet.start(3, "d", ENGINE._replace(args=("--port", "$(FLEETCTL_PORT)", "--eager"))).files() == {}
    assert fleet.start(4, "e", ENGINE._replace(version=("echo", "2.0"))).files() == {}
    assert fleet.start(5, "f").files() == compiled
