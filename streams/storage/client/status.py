"""The status of the brokers and of the followed groups.

While no broker answers, commands wait and nothing is lost. A failed group is no longer
followed: commands about it raise the reason, others continue.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ClientStatus:
    """The status. `silent_ms` is as of the last check, which runs every few seconds."""

    silent_ms: int = 0
    failed: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_well(self) -> bool:
        """Whether commands can be executed."""
        return not self.silent_ms and not self.failed

    def __str__(self) -> str:
        if self.is_well:
            return "the brokers answer"
        said = [f"group {name} failed: {why}" for name, why in sorted(self.failed.items())]
        if self.silent_ms:
            said.insert(0, f"no broker has answered for {self.silent_ms // 1000} s: waiting")
        return "; ".join(said)
