"""The compute protocol: commands from a controller to its replicas, and their responses."""
