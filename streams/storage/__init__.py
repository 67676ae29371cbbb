"""Shards: collections that vary over time, durable on Kafka, their fold, handles and reads."""
