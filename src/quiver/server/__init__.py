"""The node: a queue that many processes and languages share, behind one HTTP port."""
