"""The loop of `watch`: look, decide, plan, apply, repeat."""
