"""Placement on a GPU cluster's trace: tasks that arrive one by one, or all of them as one fleet."""
