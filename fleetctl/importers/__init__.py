"""Turns a live fleet, or files of other systems, into a fleet file. Every guess and every loss is reported."""
