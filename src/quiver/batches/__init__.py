"""PACKS: the only package that knows what an Arrow batch of messages looks like."""
