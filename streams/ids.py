"""Types of ids, names and integers that must not be mixed up.

Times are integers of the default timeline: milliseconds since the Unix epoch. Their order is
total, so a frontier is one time or empty (`streams.progress`).
"""

from typing import NewType

Timestamp = NewType("Timestamp", int)
"""A logical time. Physical instants are plain integers whose names end in `_ms`."""

Offset = NewType("Offset", int)
"""The position of a record in a Kafka partition."""

Diff = NewType("Diff", int)
"""A signed change of a row's multiplicity."""

CollectionId = NewType("CollectionId", str)
"""The permanent id of a collection, like `s3` or `u7`; given by the catalog, never reused."""

CapabilityId = NewType("CapabilityId", str)
"""The name of a read or write capability; any client that presents it may use it."""

EventId = NewType("EventId", str)
"""The id of one event of a log: a hexadecimal UUID chosen by the writer. Copies share it."""

Topic = NewType("Topic", str)
"""The name of a Kafka topic."""

MINIMUM_TIME = Timestamp(0)

DEFAULT_CLUSTER = "default"
"""The name of the compute cluster that is always there."""
