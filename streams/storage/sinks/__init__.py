"""Sinks: a collection's changes in an output topic, exactly once."""
