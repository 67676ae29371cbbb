"""Hostile input against a running environment: what one client sends costs no other."""
