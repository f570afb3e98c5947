"""The ledger: what every card, node and slot still has, and one replica placed on it."""
