"""A Kafka cluster as storage sees it: logs, chunks and topics behind shared connections."""

from streams.ids import Offset, Topic
from streams.kafka import clients
from streams.kafka.admin import KafkaTopics
from streams.kafka.choices import DEFAULTS, TopicChoices
from streams.kafka.chunks import KafkaChunks
from streams.kafka.log import Chunks, Logs, Tail
from streams.kafka.logs import KafkaLogs
from streams.kafka.sender import Sender
from streams.kafka.settings import ClientSettings
from streams.kafka.topics import Topics


class KafkaBroker:
    """The connections of one process. Tails are the caller's to close.

    `choices` are what new topics are made with; old ones must be as durable.
    """

    def __init__(self, settings: ClientSettings, choices: TopicChoices = DEFAULTS) -> None:
        self.settings = settings
        admin = clients.admin(settings)
        self._sender = Sender(settings)
        self._logs = KafkaLogs(settings, self._sender, admin)
        self._chunks = KafkaChunks(settings, self._sender)
        self.logs: Logs = self._logs
        self.chunks: Chunks = self._chunks
        self.topics: Topics = KafkaTopics(admin, choices)

    def committed(self, topic: Topic, start: Offset) -> Tail:
        """One reader of a topic that others write: of what they have committed."""
        return self._logs.committed(topic, start)

    def close(self) -> None:
        """Release the connections."""
        self._logs.close()
        self._chunks.close()
        self._sender.close()
