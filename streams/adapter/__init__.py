"""SQL statements, catalog, timestamp selection and the coordinator that ties them together."""
