"""Migration policies: which request moves from which instance to which."""
