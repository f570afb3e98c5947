"""Reports: a plan, a diff or an apply as one model that every output format can render."""
