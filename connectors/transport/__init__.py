"""Transports of the protocol: gRPC, processes with pipes, or a thread of this process."""
