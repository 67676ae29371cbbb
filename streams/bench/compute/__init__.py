"""Benchmarks of the compute protocol: peeks, subscribes, restarts, and many dataflows."""
