"""The checks of `fleetctl doctor`, one file per area: pure functions of the evidence."""
