"""Synthetic fleets whose best packing is known, because they are cut out of one."""
