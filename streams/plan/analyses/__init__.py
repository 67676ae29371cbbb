"""Static analyses of a plan: keys, sizes, failures, equality, time."""
