"""The compute protocol: commands, responses, their history, and the controller's side of it."""
