"""What becomes of an attempt to change the catalog."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Accepted:
    """The event counts; the catalog has this version now."""

    version: int


@dataclass(frozen=True, slots=True)
class VersionMismatch:
    """Another event was faster: the catalog was at version `current`."""

    current: int


@dataclass(frozen=True, slots=True)
class Fenced:
    """Another coordinator has taken over, with `epoch`."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The change is invalid; `reason` says why."""

    reason: str


Outcome = Accepted | VersionMismatch | Fenced | Refused
