"""Weights on a node: fetched and verified before an engine starts, and served to the nodes that start later.

Files in, files out, named by the hash of their index; the standard library alone, and NumPy where the node has it.
Nothing here knows Ray: `agent/model_files.py` connects a member with it.
"""

from .index import NAME, WeightsError, write_index
from .views import view_id

__all__ = ["NAME", "WeightsError", "view_id", "write_index"]
