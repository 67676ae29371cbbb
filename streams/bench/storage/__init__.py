"""Benchmarks of storage alone: the `Storage` API against an embedded broker, no Spark."""
