"""A Kafka cluster for storage: logs, chunks and topics behind shared connections."""

from streams.ids import Offset, Topic
from streams.kafka.client import clients
from streams.kafka.client.admin import KafkaTopics
from streams.kafka.client.chunks import KafkaChunks
from streams.kafka.client.logs import KafkaLogs
from streams.kafka.client.producer import Sender
from streams.kafka.client.reconnecting_client import ReconnectingClient
from streams.kafka.log import Chunks, Logs, Tail
from streams.kafka.settings import ClientSettings
from streams.kafka.topic_settings import DEFAULTS, TopicChoices
from streams.kafka.topics import Topics


class KafkaBroker:
    """The connections of one process. The caller closes the tails.

    New topics are created with `choices`; existing ones must be as durable.
    """

    def __init__(self, settings: ClientSettings, choices: TopicChoices = DEFAULTS) -> None:
        self.settings = settings
        admins = ReconnectingClient(lambda: clients.admin(settings))
        self._sender = Sender(settings)
        self._logs = KafkaLogs(settings, self._sender, admins)
        self._chunks = KafkaChunks(settings, self._sender)
        self.logs: Logs = self._logs
        self.chunks: Chunks = self._chunks
        self.topics: Topics = KafkaTopics(admins, choices)

    def committed(self, topic: Topic, start: Offset) -> Tail:
        """Return a reader of the committed records of a topic that others write."""
        return self._logs.committed(topic, start)

    def close(self) -> None:
        """Release the connections."""
        self._logs.close()
        self._chunks.close()
        self._sender.close()
