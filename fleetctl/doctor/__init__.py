"""The checks of `fleetctl doctor`, a file for each area: pure functions of what was seen."""
