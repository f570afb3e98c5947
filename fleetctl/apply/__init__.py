"""Hand a plan to the agent and follow it. The only part of the client that changes anything on a cluster."""
