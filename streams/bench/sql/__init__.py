"""`slackwater bench sql`: DuckDB's catalogue against the planner, and TPC-H's compile times."""
