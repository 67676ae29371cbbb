"""What the services of an environment are told, as one file that the supervisor writes.

Apart from the services themselves (`streams.app.services`), so that the shell need not load
Spark and the planner to read it.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from streams.kafka.settings import ClientSettings

FENCED = 3
"""Exit code of a coordinator that another one has taken over from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What a service is told.

    `slice_bytes` is how much of the stored inputs a hydration takes at once. `topics` are
    pairs as `streams.kafka.choices` reads them; `points` say where a test wants the service
    to die.
    """

    bootstrap: str
    directory: str
    namespace: str = "sw"
    instance: str = "default"
    buckets: int = 2
    port: int = 0
    replica: str = "r1"
    master: str = "local[2,4]"
    driver_memory: str = "1g"
    slice_bytes: int = 16 << 20
    retain_ms: int = 3_600_000
    compact_every_s: float = 30.0
    timings: bool = False
    client: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold secrets
    topics: Mapping[str, str] = field(default_factory=dict)
    points: Mapping[str, int] = field(default_factory=dict)

    @property
    def kafka(self) -> ClientSettings:
        """The connection to Kafka."""
        return ClientSettings(self.bootstrap, tuple(sorted(self.client.items())))

    def write(self, path: Path) -> None:
        """Keep it as JSON, readable by the owner alone: it may hold secrets."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.chmod(0o600)  # also when it was there before
        path.write_text(json.dumps(asdict(self), indent=2) + "\n")


def read_service(path: Path) -> Service:
    """What `Service.write` wrote."""
    return Service(**json.loads(path.read_text()))
