"""Families of samples as text for Prometheus, with what the process itself uses.

Source: Prometheus, "Exposition formats", text-based format 0.0.4.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "slackwater_"

Labels = Mapping[str, str]
Sample = tuple[Labels, float]
Value = tuple[Labels, float | None]


@dataclass(frozen=True, slots=True)
class Family:
    """Samples of one name, which is without the prefix; a counter's ends with `_total`."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    samples: tuple[Sample, ...]


def gauge(name: str, description: str, samples: Iterable[Value]) -> Family:
    """Return a family of present values; a value that is not known (None) has no sample."""
    return Family(name, "gauge", description, known(samples))


def counter(name: str, description: str, samples: Iterable[Value]) -> Family:
    """Return a family of counts; a count that is not known (None) has no sample."""
    return Family(name, "counter", description, known(samples))


def known(values: Iterable[Value]) -> tuple[Sample, ...]:
    """Return the samples of the values that are known."""
    return tuple((labels, float(value)) for labels, value in values if value is not None)


def seconds(ms: int | None) -> float | None:
    """Return milliseconds in the unit that Prometheus prescribes."""
    return None if ms is None else ms / 1000


def exposition(families: Iterable[Family]) -> str:
    """Return the text. Families without samples are left out."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(tuple(families)))
    return generate_latest(registry).decode()


def of_process() -> str:
    """Return what this process uses: processor time, memory, open files."""
    return generate_latest(_process()).decode()


@cache
def _process() -> CollectorRegistry:
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return registry


@dataclass(frozen=True, slots=True, eq=False)  # a registry hashes it
class _Families:
    """What the library asks for metrics."""

    families: tuple[Family, ...]

    def collect(self) -> Iterator[Metric]:
        """Each family with samples."""
        for family in self.families:
            if family.samples:
                yield _metric(family)

    def describe(self) -> Iterable[Metric]:
        """Nothing: no name is registered twice."""
        return ()


def _metric(family: Family) -> Metric:
    name, labels = f"{PREFIX}{family.name}", tuple(family.samples[0][0])
    metric = (
        GaugeMetricFamily(name, family.help, labels=labels)
        if family.kind == "gauge"
        else CounterMetricFamily(name.removesuffix("_total"), family.help, labels=labels)
    )
    for values, number in family.samples:
        metric.add_metric([values[label] for label in labels], number)
    return metric
