"""The driver of collections: follows them, cuts transactions, drives a connector."""
