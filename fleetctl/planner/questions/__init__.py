"""Questions people ask before they merge: capacity, what-if, the placement map. Pure, like the planner."""
