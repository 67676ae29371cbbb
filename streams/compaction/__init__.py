"""Merges batches up to since and swaps the result in; to come with the compaction job."""
