"""What an environment of containers has: the usual, and what a test wants beyond it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import trustme

from tests.e2e import brokers

if TYPE_CHECKING:
    from tests.e2e.containers import Builder, Environment


def nothing(*_: object) -> None:
    """Where a plan has nothing to do."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What an environment has beyond the usual."""

    image: str = "slackwater"
    """Which of the images the services run at first."""
    with_clocks: bool = False
    """Each part has a clock of its own."""
    brokers: Sequence[str] = brokers.ONE
    broker: Mapping[str, str] = field(default_factory=dict)
    """More variables of each broker."""
    via: str = ""
    """A part through which the services reach the broker."""
    client: Callable[[Path], Mapping[str, str]] = lambda _: {}
    """Settings of clients on this machine, by the directory of the secrets."""
    arguments: Sequence[str] = ()
    """More arguments of each service."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """More variables of each service."""
    with_state: Sequence[str] = ()
    """Parts with one working directory, which outlives each of them."""
    prepared: Callable[[trustme.CA, Path], None] = nothing
    """Called to make more secrets."""
    opened: Callable[["Environment"], None] = nothing
    """Called when the brokers answer, before the services begin."""
    more: Callable[["Builder"], None] = nothing
    """Called to start more parts before the services."""
