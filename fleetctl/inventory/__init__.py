"""The live inventory: read from a Ray dashboard with GETs only, or from a file. Never imports ray."""
