"""Greedy passes over the classes of demand, and improving what they leave."""
