"""SQL of a node, in processes of its own: `questions` has the slots, `process` one of the processes as
the node sees it, `worker` is what runs there, `frames` what the two say to each other.
"""
