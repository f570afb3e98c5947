"""Placement on a trace of a GPU cluster: tasks that arrive one by one, or all as one fleet."""
