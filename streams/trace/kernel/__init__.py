"""The door to DuckDB: one connection a worker, its types, its functions."""
