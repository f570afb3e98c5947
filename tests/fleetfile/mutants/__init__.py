"""Mutated fleet files through `fmt`, judged by a YAML reader that shares nothing with it; `make fuzz-fmt`."""
