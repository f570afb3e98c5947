"""Turns what people already have into a fleet file: the live fleet, files of other systems. No guess in silence."""
