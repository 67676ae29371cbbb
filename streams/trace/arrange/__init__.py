"""Arrangements: the state of operators, in sorted runs."""
