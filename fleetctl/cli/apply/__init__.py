"""`fleetctl apply`: the command, its questions and output, and following a run."""
