"""Questions people ask before they merge: how many more would fit, what if, who is where. Pure, as the planner is."""
