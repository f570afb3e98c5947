"""`fleetctl mcp`: questions about a fleet and its cluster over the Model Context Protocol. Read-only."""
