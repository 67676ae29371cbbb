"""The public test kit: run a view in process and look at it at every time."""
