"""Runs the materializations of an environment beside each other."""
