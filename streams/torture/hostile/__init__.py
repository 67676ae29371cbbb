"""Hostile input to a running environment: input of one client must not affect others."""
