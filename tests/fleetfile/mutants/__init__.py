"""Mutated fleet files formatted by `fmt` and judged by an independent YAML reader; `make fuzz-fmt`."""
