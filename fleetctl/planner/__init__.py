"""The planner: (fleet, inventory) -> plan. Pure functions: no I/O, no clock, no randomness, no Ray."""
