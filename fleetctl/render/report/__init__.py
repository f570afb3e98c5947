"""Reports: a plan, a difference or an apply as one shape, which every output format can write."""
