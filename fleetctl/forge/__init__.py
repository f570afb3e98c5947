"""Talks to the forge a change is reviewed on: a comment that stays one, summaries, outputs. Knows no plan."""
