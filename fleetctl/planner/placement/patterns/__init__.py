"""Column generation over what single nodes can hold, for odd sizes, shared cards and nodes short of CPU."""
