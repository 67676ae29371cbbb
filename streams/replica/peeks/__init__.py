"""Answers peeks, in a loop of its own beside the one that maintains dataflows."""
