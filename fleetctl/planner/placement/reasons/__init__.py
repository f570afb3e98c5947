"""Why something does not fit: the arithmetic, what stands in the way, and the smallest addition that would do."""
