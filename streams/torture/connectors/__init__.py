"""Torture of materializations: faults at messages of the protocol, and checks of the tables."""
