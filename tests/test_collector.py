"""The cycle collector is off while something large is built, and as it was afterwards, whatever happened."""

from __future__ import annotations

import gc

import pytest

from fleetctl.collector import collector_paused


def test_the_collector_is_off_inside_and_on_again_outside() -> None:
    with collector_paused():
        with collector_paused(lasting=True):
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_the_collector_is_on_again_after_an_error() -> None:
    with pytest.raises(ValueError, match="broken"), collector_paused(lasting=True):
        raise ValueError("broken")
    assert gc.isenabled()


def test_what_lasts_is_left_alone_and_the_rest_is_not() -> None:
    before = gc.get_freeze_count()
    with collector_paused():
        kept = [[] for _ in range(1000)]
    assert gc.get_freeze_count() == before
    with collector_paused(lasting=True):
        kept += [[] for _ in range(1000)]
    assert gc.get_freeze_count() >= before + 1000
    gc.unfreeze()
