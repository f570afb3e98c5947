"""`fleetctl ci`: the commands of a CI job, and their reports to the forge."""
