"""Column generation over patterns of single nodes, for odd sizes, shared cards and nodes short of CPU."""
