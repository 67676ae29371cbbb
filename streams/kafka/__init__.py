"""The only door to Kafka: logs, chunks, raw topics, transactions and an embedded broker.

Only this package imports confluent_kafka.
"""
