"""What travels between a client and a node: frames, and values in them. No IO; see decision 27."""
