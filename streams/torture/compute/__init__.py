"""Replicas and controllers of one instance under faults, and what they say to each other."""
