"""Endpoints kept in step with collections: protocol, runtime, fence, dialects."""
