"""What a model needs on a card: its description from headers, and the bytes that an engine makes of it."""
