"""Connectors of SQL databases: what they share. A `Dialect` holds what differs."""
