"""Compile caches of an engine on its node: fetched before it starts, offered to other members once it is ready.

`door.py` is all that a member knows of it, `offers.py` all that a replica tells; only these two import Ray. A cache
goes to members with the same key (key.py) and to no other. What an engine finds in its folder was copied there from a
snapshot, byte by byte as its index says (snapshot.py). Snapshots lie in the store of weights, and are served and
fetched as weights are.
"""
