"""The adapter: SQL statements in, commands for storage and compute out; the catalog; times."""
