"""Endpoints kept in step with collections: the protocol, its runtime, the fence, the dialects."""
