"""The ports on a broker, behind librdkafka: the only code that talks to Kafka."""
