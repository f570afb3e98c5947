"""Other schedulers' rules for choosing a node, compared on the same tasks and nodes."""
