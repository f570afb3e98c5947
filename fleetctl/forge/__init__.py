"""The forge a change is reviewed on: one comment per fleet, summaries, outputs. Independent of plans."""
