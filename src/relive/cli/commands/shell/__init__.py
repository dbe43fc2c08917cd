"""`relive completion`: what shells need to complete commands, options, runs and columns."""
