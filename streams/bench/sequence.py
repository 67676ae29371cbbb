"""Benchmarks one after the other: each is reported when it ends, and fails alone."""

import logging
from collections.abc import Callable, Mapping, Sequence

from streams.bench.figures import Outcome

log = logging.getLogger(__name__)

Benchmark = Callable[[], Sequence[Outcome]]


def in_turn(
    benchmarks: Mapping[str, Benchmark],
    begin: Callable[[str], None],
    report: Callable[[Sequence[Outcome], Sequence[Outcome]], None],
) -> tuple[str, ...]:
    """Run all benchmarks in their order, and return the names of those that failed.

    `begin` gets the place and the name of each; `report` what is new and all there is so far.
    """
    outcomes, failures = list[Outcome](), list[str]()
    for place, (name, benchmark) in enumerate(benchmarks.items(), start=1):
        begin(f"{place} of {len(benchmarks)}: {name}")
        try:
            measured = benchmark()
        except Exception:  # whatever it is: hours of the others are not lost for it
            log.exception("a benchmark failed", extra={"benchmark": name})
            failures.append(name)
            continue
        outcomes += measured
        report(measured, outcomes)
    return tuple(failures)
