"""Updates in columns: consolidate, advance, sorted runs, and the DuckDB kernel. Pure."""
