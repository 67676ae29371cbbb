"""The parameters of replicas that a controller governs, with their defaults and bounds. Pure.

`CreateTimely` names those whose values differ from the defaults, and `UpdateConfiguration`
those that change. They hold at once, for dataflows and peeks that are there as well. Values are
taken together or not at all: one that is out of bounds refuses all of them. A name that is not
known here is ignored, so a replica of an older version serves a newer controller.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType

from streams.errors import InvalidUsage

ParameterValues = Mapping[str, int]
"""Values by the names of parameters."""

NO_VALUES: ParameterValues = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeParameters:
    """The values that a replica goes by.

    Units: `max_result_bytes` of the rows of an answer to a peek; `max_read_bytes` of the rows
    that a peek of a shard holds in memory; `heartbeat_ms` of silence before a replica writes
    `Alive`; `frontiers_ms` between reports of the frontiers of a dataflow;
    `max_unacknowledged_bytes` that a subscribe delivers ahead.
    """

    max_result_bytes: int = 7 << 20
    max_read_bytes: int = 256 << 20
    heartbeat_ms: int = 2_000
    frontiers_ms: int = 1_000
    max_unacknowledged_bytes: int = 16 << 20

    def updated(self, values: ParameterValues) -> "ComputeParameters":
        """Return the parameters with other values; unknown names are ignored.

        Errors: InvalidUsage as `check_values`.
        """
        check_values(values)
        accepted = {name: value for name, value in values.items() if name in BOUNDS}
        return replace(self, **accepted)

    def governed_by(self, values: ParameterValues) -> "ComputeParameters":
        """Return the parameters with values that were valid when they were stored.

        Another version may have had other names and bounds: a name that is not known here is
        ignored, and a value is moved into its bounds.
        """
        return self.updated({name: _bounded(name, value) for name, value in values.items()})


BOUNDS: Mapping[str, tuple[int, int]] = {
    "max_result_bytes": (1 << 10, 7 << 20),
    "max_read_bytes": (1 << 20, 4 << 30),
    "heartbeat_ms": (1_000, 4_000),
    "frontiers_ms": (100, 10_000),
    "max_unacknowledged_bytes": (1 << 20, 1 << 30),
}
"""The least and the most of each parameter.

An answer fits into a record, and two heartbeats into the silence after which a replica counts
as gone (`streams.compute.replica_responses`).
"""

DEFAULTS = ComputeParameters()


def _bounded(name: str, value: int) -> int:
    least, most = BOUNDS.get(name, (value, value))
    return max(least, min(value, most))


def check_values(values: ParameterValues) -> None:
    """Refuse values out of bounds. Errors: InvalidUsage, which names the first of them."""
    for name, value in sorted(values.items()):
        least, most = BOUNDS.get(name, (value, value))
        if not least <= value <= most:
            raise InvalidUsage(f"parameter {name}: expected {least} to {most}, actual {value}")


def check_names(values: ParameterValues) -> None:
    """Refuse names that are not known here. Errors: InvalidUsage."""
    if unknown := unknown_names(values):
        names = ", ".join(sorted(BOUNDS))
        raise InvalidUsage(f"expected a parameter of {names}, actual {unknown[0]}")


def unknown_names(values: ParameterValues) -> tuple[str, ...]:
    """Return the names that are not known here, in order."""
    return tuple(sorted(values.keys() - BOUNDS.keys()))


def differing(
    parameters: ComputeParameters, others: ComputeParameters = DEFAULTS
) -> ParameterValues:
    """Return the values that others have not; of the defaults, what `CreateTimely` names."""
    other_values = asdict(others)
    return {
        name: value for name, value in asdict(parameters).items() if other_values[name] != value
    }
