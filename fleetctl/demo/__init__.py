"""The embedded default: a local Ray of four nodes with simulated GPUs, HTTP stub engines, and a tour of both."""
