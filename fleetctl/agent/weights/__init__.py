"""Weights on a node: fetched and verified before an engine starts, then served to nodes that start later.

An artifact is a set of files, named by the hash of its index. Standard library only, plus NumPy if the node has it.
Nothing here imports Ray: `agent/model_files.py` connects this package to a member.
"""
