"""Greedy passes over the classes of demand, and ways to improve their result."""
