"""A real Kafka broker as a child process: for a laptop, for tests, for the demo.

One node in KRaft mode on the loopback interface. Its jars are fetched once by PySpark's Ivy and
cached; its data directory outlives it; the broker never outlives its parent.
"""

from streams.kafka.embedded.broker import EmbeddedBroker
from streams.kafka.embedded.security import BrokerSecurity

__all__ = ["BrokerSecurity", "EmbeddedBroker"]
