"""Compares revisions of a fleet: what changed in meaning, and what a change causes by itself. Writes nothing."""
