"""ERROR LIMIT: of a source's messages, how many may be such that cannot be decoded. Pure.

While a source has a limit its binding counts the messages that were read and those that could
not be decoded (`Fact.MESSAGES`, `Fact.REFUSED`), in the record that makes them count. The
latter it counts with ON ERROR INLINE too, for SHOW SOURCES. The
Append that would pass the limit is not made: so the counts are exact, whichever replica reads
a range, and never beyond the limit. Messages are counted, not offsets: a compacted topic has
gaps.

A limit begins with the counts that it was declared at. A source that resumed elsewhere counts
from 0 in its new generation.
"""

from streams.compute import binding
from streams.compute.binding import Fact, Offsets
from streams.compute.description import IngestionDescription
from streams.compute.event_time import Seen
from streams.compute.stalls import OVER_LIMIT
from streams.plan.metadata import FEWEST_OF_SHARE, ErrorLimit


def counted(source: IngestionDescription, bound: Offsets, seen: Seen) -> Offsets:
    """Return the binding of an Append with what its messages add, if they are counted."""
    generation = source.start.generation
    if source.error_limit is not None:
        bound = binding.counted(bound, generation, seen.messages, Fact.MESSAGES)
    if counts_refused(source):
        bound = binding.counted(bound, generation, seen.bad, Fact.REFUSED)
    return bound


def counts_refused(source: IngestionDescription) -> bool:
    """Whether messages that cannot be decoded are counted; errors have no other count."""
    return source.error_limit is not None or source.on_error == "inline"


def counts_of(source: IngestionDescription) -> tuple[Fact, ...]:
    """Return which counts of bad messages a source's binding has."""
    facts = (Fact.REFUSED,) if counts_refused(source) else ()
    return facts if source.error_limit is None else (*facts, Fact.MESSAGES)


def counts(source: IngestionDescription, bound: Offsets) -> tuple[int, int]:
    """Return how many messages could not be decoded, and of how many, since the limit began."""
    refused, messages = totals(source, bound)
    limit = source.error_limit or ErrorLimit()
    return refused - limit.refused_before, messages - limit.messages_before


def totals(source: IngestionDescription, bound: Offsets) -> tuple[int, int]:
    """Return what the source's generation has counted, under all limits that it had."""
    generation = source.start.generation
    refused = sum(binding.facts(bound, generation, Fact.REFUSED).values())
    messages = sum(binding.facts(bound, generation, Fact.MESSAGES).values())
    return refused, messages


def limit_objection(source: IngestionDescription, bound: Offsets, to: Offsets) -> str | None:
    """Return why the Append from a binding `bound` to another would pass the limit, or None."""
    limit = source.error_limit
    if limit is None:
        return None
    refused, messages = counts(source, to)
    if not is_passed(limit, refused, messages):
        return None
    before, of = counts(source, bound)
    return (
        f'{OVER_LIMIT}topic "{source.topic}": ERROR LIMIT {limit} would be passed:'
        f" {refused:,} of {messages:,} messages cannot be decoded, and {before:,} of {of:,}"
        " are counted; to go on: ALTER SOURCE ... SET (ERROR LIMIT ...), which begins a new"
        " count, or SET (ERROR LIMIT NONE)"
    )


def is_passed(limit: ErrorLimit, refused: int, messages: int) -> bool:
    """Whether so many are too many; a share is judged from `FEWEST_OF_SHARE` messages on."""
    if limit.number is not None:
        return refused > limit.number
    if limit.millionths is None or messages < FEWEST_OF_SHARE:
        return False
    return refused * 1_000_000 > limit.millionths * messages
