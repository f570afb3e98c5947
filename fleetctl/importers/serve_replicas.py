"""How many replicas a Serve deployment keeps: a fixed number, or the least that its autoscaling goes down to."""

from __future__ import annotations

from fleetctl.importers.reading import Reading


def replica_count(source: Reading) -> int:
    """Return the floor: the fixed number of replicas, or the least an autoscaled deployment keeps."""
    written = source.amount("num_replicas")
    if isinstance(source.peek("autoscaling_config"), dict):
        if written not in (None, "auto"):
            source.note("num_replicas", "not kept: the replicas are those of autoscaling_config", "lost")
        return _least(source.child("autoscaling_config"))
    if written == "auto":
        source.note("num_replicas", "auto: there is no autoscaling, and the least Serve keeps is 1", "lost")
        return 1
    if isinstance(written, int) and written >= 0:
        return written
    if written is not None:
        source.note("num_replicas", f"{written} is not a number of replicas: 1 is written", "todo")
    return 1


def _least(scaling: Reading) -> int:
    scaling.lose_others("there is no autoscaling: replicas is the least number, and it is kept", "min_replicas")
    return scaling.count("min_replicas", "replicas")
