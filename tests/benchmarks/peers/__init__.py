"""Other schedulers' rules for choosing a node, for comparison on the same tasks and nodes."""
