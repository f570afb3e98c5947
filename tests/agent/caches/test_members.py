"""What a member compiled, the next one with the same key finds; whatever is wrong, it starts without."""

from __future__ import annotations

from caches_world import ENGINE, Fleet


def test_the_second_replica_finds_what_the_first_compiled(fleet: Fleet) -> None:
    first = fleet.start(0, "a")
    assert first.files() == {}
    assert first.caches.got is not None
    assert first.caches.got.source == ""
    compiled = first.watch().compile()
    offer = first.offered()
    assert offer.bytes > sum(map(len, compiled.values()))
    second = fleet.start(1, "b")
    assert second.files() == compiled
    assert second.caches.got is not None
    assert (second.caches.got.source, second.caches.got.from_) == ("peer", f"m/0 at 127.0.0.1:{offer.port}")
    assert second.root != first.root
    third = fleet.start(2, "c")  # the second one serves, too, before its own engine is ready
    assert third.files() == compiled


def test_a_restarted_member_finds_the_snapshot_of_its_node(fleet: Fleet) -> None:
    first = fleet.start(0, "a")
    compiled = first.watch().compile()
    first.offered()
    (first.folders[0] / "cut.so").write_bytes(b"half of")  # as by an engine that was killed
    first.end()
    again = fleet.start(0, "a")
    assert again.files() == compiled
    assert again.caches.got is not None
    assert again.caches.got.source == "disk"


def test_without_a_version_nothing_is_exchanged(fleet: Fleet) -> None:
    engine = ENGINE._replace(version=())
    first = fleet.start(0, "a", engine)
    first.watch().compile()
    assert "not exchanged with other members" in first.log[0]
    second = fleet.start(1, "b", engine)
    assert (second.files(), first.caches.offers()) == ({}, [])
