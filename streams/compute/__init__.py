"""The compute protocol: what a controller and its replicas say to each other on topics."""
