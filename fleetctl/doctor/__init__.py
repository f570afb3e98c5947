"""The checks of `fleetctl doctor`, a file each: pure functions of what was seen."""
