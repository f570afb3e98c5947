"""Compares revisions of a fleet: what changed in meaning, and what a change causes alone. Writes nothing."""
