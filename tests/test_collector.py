"""The cycle collector is off while something large is built, and restored afterwards, even after an error."""

from __future__ import annotations

import gc

import pytest

from fleetctl.collector import collector_paused, resume_after_loading


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


def test_only_lasting_objects_are_frozen() -> None:
    before = gc.get_freeze_count()
    with collector_paused():
        kept = [[] for _ in range(1000)]
    assert gc.get_freeze_count() == before
    with collector_paused(lasting=True):
        kept += [[] for _ in range(1000)]
    assert gc.get_freeze_count() >= before + 1000
    gc.unfreeze()


def test_objects_loaded_with_the_collector_off_are_frozen_and_the_collector_runs_again() -> None:
    thresholds, before = gc.get_threshold(), gc.get_freeze_count()
    resume_after_loading()
    assert (gc.get_freeze_count(), gc.get_threshold()) == (before, thresholds)
    gc.disable()
    kept = [[] for _ in range(1000)]
    resume_after_loading()
    assert gc.isenabled()
    assert gc.get_freeze_count() >= before + len(kept)
    gc.unfreeze()
    gc.set_threshold(*thresholds)
