"""From text to the logical plan, through DuckDB's binder; what is refused, and why."""
