"""Compaction: merges batches with times advanced to since, and reclaims unnamed chunks."""
