"""Reads: which chunks hold an interval, their updates, subscriptions."""
