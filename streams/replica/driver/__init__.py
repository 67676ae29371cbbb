"""The driver: which dataflow is stepped when, and what its steps lead to."""
