"""The demo: a local Ray cluster of four nodes with simulated GPUs, HTTP stub engines, and a guided tour."""
