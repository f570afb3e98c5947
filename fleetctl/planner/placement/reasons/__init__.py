"""Why something does not fit: the arithmetic, what is in the way, and the smallest addition that would do."""
