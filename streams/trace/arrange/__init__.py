"""Arrangements: what operators remember, in sorted runs."""
