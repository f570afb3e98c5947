"""`fleetctl apply`: the command, its questions, its output, and following a run."""
