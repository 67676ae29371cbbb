"""What a client knows of the brokers and groups that it follows, for whoever waits.

While no broker answers, commands wait and nothing is lost. A group that has failed is followed
no more: commands about it raise the reason, others go on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Status:
    """How things stand. `silent_ms` is as of the last look, which is made every few seconds."""

    silent_ms: int = 0
    failed: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_well(self) -> bool:
        """Whether nothing keeps a command from being carried out."""
        return not self.silent_ms and not self.failed

    def __str__(self) -> str:
        if self.is_well:
            return "the brokers answer"
        said = [f"group {name} failed: {why}" for name, why in sorted(self.failed.items())]
        if self.silent_ms:
            said.insert(0, f"no broker answers since {self.silent_ms // 1000} s: waiting")
        return "; ".join(said)
