"""The integers and names that must not be mixed up, each its own type.

Times are integers of the default timeline: milliseconds since the Unix epoch. Their order is
total, so a frontier is one time or nothing at all (`streams.progress`).
"""

from typing import NewType

Timestamp = NewType("Timestamp", int)
"""A logical time. Physical instants are plain integers whose names end in `_ms`."""

Offset = NewType("Offset", int)
"""The position of a record in a Kafka partition."""

Diff = NewType("Diff", int)
"""A signed change of a row's multiplicity."""

CollectionId = NewType("CollectionId", str)
"""Names a collection for ever, like `s3` or `u7`; handed out by the catalog, never reused."""

CapabilityId = NewType("CapabilityId", str)
"""Names a read or write capability; whoever presents it has the right."""

EventId = NewType("EventId", str)
"""Names one event of a log: a hexadecimal UUID chosen by the writer. Copies share it."""

Topic = NewType("Topic", str)
"""The name of a Kafka topic."""

MINIMUM_TIME = Timestamp(0)
