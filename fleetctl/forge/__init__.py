"""Talks to the forge a pull request lives on: a comment that stays one, step summaries, outputs. Knows no plan."""
