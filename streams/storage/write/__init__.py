"""Writes: updates are validated, stored in chunks, and linked by one event."""
