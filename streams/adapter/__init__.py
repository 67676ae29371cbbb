"""The adapter: executes SQL on storage and compute; the catalog; times of reads."""
