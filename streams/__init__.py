"""Slackwater: exact, always-fresh SQL views over Kafka, stepped by Spark."""
