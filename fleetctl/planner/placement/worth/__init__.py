"""The worth of the free room on nodes to everything else that is expected."""
