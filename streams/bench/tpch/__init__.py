"""TPC-H as views: its 22 queries, its data, and what they cost to hydrate and to keep."""
