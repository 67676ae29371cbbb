"""Headers of records. Brokers take any bytes for a header's name; the client decodes UTF-8."""

from collections.abc import Sequence

from confluent_kafka import Message

Headers = Sequence[tuple[str, bytes | None]]


def headers_of(message: Message) -> Headers | None:
    """Return the headers of a record, in order; None if a name is not UTF-8.

    Then the client gives none of them. It cuts a name at a NUL. To be called once a message.
    """
    # For such a name the client sets an exception, and returns a list with a hole that ends the
    # process when it is looked at. `map` notices; a call from Python may not, once CPython has
    # specialised it, and at a second call there is no exception any more.
    try:
        [headers] = map(Message.headers, (message,))
    except (UnicodeDecodeError, SystemError):
        return None
    pairs = headers.items() if isinstance(headers, dict) else headers or ()
    return [
        (name, value.encode() if isinstance(value, str) else value) for name, value in pairs
    ]
