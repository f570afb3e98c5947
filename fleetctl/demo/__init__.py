"""The embedded default: a local Ray of four nodes with pretended GPUs, HTTP stub engines, and a tour of both."""
