"""Merges batches up to since and swaps the result in; reclaims what nothing names any more."""
