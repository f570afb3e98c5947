"""`fleetctl ci`: the commands of a CI job, and what they send to the forge."""
