"""Benchmarks: commands that print figures side by side and say what dominates. Never tests."""
