"""`quiver://`: the verbs of a queue, each a call to a node."""
