"""Synthetic fleets with a known optimal packing: they are cut out of one."""
