"""Processes of bounded memory, in which the engine evaluates what users' texts say."""
