"""The fleet file: loading with positions, validation of everything at once, resolving, formatting."""
