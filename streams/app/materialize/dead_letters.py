"""Dead letters of a task in topics of the brokers, each of them once."""

from streams.errors import SlackwaterError
from streams.ids import Topic
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.client.transactions import OutRecord, Transactions
from streams.kafka.topics import TopicKind, TopicSpec

PARTITION = 0


class KafkaLetters:
    """Writes as one session: a newer one of the task fences it off. One thread."""

    def __init__(self, broker: KafkaBroker, namespace: str, task: str) -> None:
        self._settings, self._topics = broker.settings, broker.topics
        self._id = f"slackwater.letters.{namespace}.{task}"
        self._session: Transactions | None = None
        self._known: set[Topic] = set()

    def write(self, topic: str, key: bytes, value: bytes) -> None:
        """As `connectors.runtime.dead_letters.DeadLetterWriter`; creates a missing topic."""
        name = Topic(topic)
        if name not in self._known and self._topics.describe(name) is None:
            self._topics.create([TopicSpec(name, 1, TopicKind.RAW)])
        self._known.add(name)
        session = self._session
        if session is None:
            session = Transactions(self._settings, self._id)
            session.init()
        self._session = None
        try:
            if session.last_value(name, key, PARTITION) != value:
                session.commit([OutRecord(name, key, value, partition=PARTITION)])
        except SlackwaterError:
            session.close()
            raise
        self._session = session

    def close(self) -> None:
        """Release the connections."""
        if self._session is not None:
            self._session.close()
