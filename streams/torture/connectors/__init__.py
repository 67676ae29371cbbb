"""Torture of materializations: faults at the messages of the protocol, and what tables hold."""
