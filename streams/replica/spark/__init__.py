"""What Spark is given: a session, a data source, and processes for its Python workers."""
