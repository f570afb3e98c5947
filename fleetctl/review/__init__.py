"""Compares revisions of a fleet: what changed in meaning, and the effect of a change alone. Writes nothing."""
