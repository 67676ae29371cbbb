"""ALTER SOURCE ... SET (ON ERROR ..., ERROR LIMIT ...): what becomes of bad messages.

The catalog has it first, as the next revision of the source. From there it gets into the
source's description, and with the next Append into its binding: a replica that has not heard of
it does not append from there on (`streams.compute.binding`). What was read before stays as it
was: dead letters, errors and counts. A collection of dead letters is made when it is wanted for
the first time, and stays.
"""

from collections.abc import Mapping

from streams.adapter.catalog import NAMES, Catalog, Item
from streams.adapter.catalog_bad_messages import BadMessages
from streams.adapter.source_by_name import source_by_name
from streams.compute import binding, dead_letters, error_limit
from streams.compute.binding import Fact
from streams.compute.description import Envelope as DescribedEnvelope
from streams.compute.description import IngestionDescription
from streams.errors import InvalidStatement
from streams.plan.metadata import ErrorLimit, OnError, Watermark
from streams.plan.sql.bad_messages import AlterErrors, spelled


def source(name: str, catalog: Catalog) -> Item:
    """Return the source of this name. Errors: InvalidStatement."""
    return source_by_name(name, catalog, "sources alone read messages")


def altered(
    statement: AlterErrors, item: Item, catalog: Catalog, bound: Mapping[int, int]
) -> BadMessages:
    """Return the event; `bound` is the shard's binding. Errors: InvalidStatement."""
    read = item.source
    assert read is not None, "an item of `source` has a source"
    on_error = statement.on_error or read.on_error
    limit = read.error_limit
    if statement.limit is not None:
        limit = _from_now_on(statement.limit, read, bound)
    refuse_limit(on_error, limit)
    if statement.on_error is not None:
        refuse_inline(on_error, read.envelope, read.watermark)
    if on_error == "dead_letter" and read.dead_letters is None:
        refuse_taken(item.name, catalog)
    return BadMessages(item.id, on_error, limit, read.revision + 1)


def refuse_limit(on_error: OnError, limit: ErrorLimit | None) -> None:
    """Errors: InvalidStatement for a limit of a source that stops at the first bad message."""
    if on_error == "fail" and limit is not None:
        raise InvalidStatement(
            f"ERROR LIMIT {limit} with ON ERROR FAIL, which stops at the first bad message",
            "expected one of the two",
            "choose another ON ERROR, or ERROR LIMIT NONE",
        )


def refuse_inline(
    on_error: OnError, envelope: DescribedEnvelope, watermark: Watermark | None
) -> None:
    """Errors: InvalidStatement for errors of keys, of a source whose keys have event times."""
    if on_error == "inline" and envelope == "upsert" and watermark is not None:
        raise InvalidStatement(
            "ON ERROR INLINE in a source of ENVELOPE UPSERT with a WATERMARK",
            "a message that cannot be decoded has no event time, so the times at which it is"
            " the error of its key are unknown",
            "choose ON ERROR DEAD LETTER, FAIL or SKIP: the key keeps the row that it had",
        )


def _from_now_on(
    limit: ErrorLimit, read: IngestionDescription, bound: Mapping[int, int]
) -> ErrorLimit | None:
    """Return the limit with the counts that it begins at; None if there is none."""
    if limit == ErrorLimit():
        return None
    refused, messages = error_limit.totals(read, bound)
    return ErrorLimit(
        number=limit.number,
        millionths=limit.millionths,
        refused_before=refused,
        messages_before=messages,
    )


def refuse_taken(source_name: str, catalog: Catalog) -> None:
    """Errors: InvalidStatement where a source's dead letters would have the name of another."""
    name = source_name + dead_letters.SUFFIX
    taken = catalog.find(name)
    if taken is not None:
        raise InvalidStatement(
            f"{NAMES[taken.kind]} {name} already exists",
            f"dead letters of the source {source_name} would have that name",
            "choose another name, or an ON ERROR without dead letters: SKIP, INLINE or FAIL",
        )


def inline(item: Item, bound: Mapping[int, int]) -> str:
    """Return how many messages are errors of the source; empty if none was."""
    if item.source is None or item.source.on_error != "inline":
        return ""
    count = binding.total(bound, Fact.REFUSED)
    return f"{count:,} message{'s' if count > 1 else ''} could not be decoded" if count else ""


def policy(item: Item, bound: Mapping[int, int]) -> str:
    """Return what becomes of bad messages, if the source was altered or has a limit."""
    read = item.source
    if read is None or not (read.revision or read.error_limit):
        return ""
    said = f"ON ERROR {spelled(read.on_error)}"
    if read.error_limit is None:
        return said
    refused, messages = error_limit.counts(read, bound)
    return (
        f"{said}, ERROR LIMIT {read.error_limit}: {refused:,} of {messages:,} messages could"
        " not be decoded"
    )
