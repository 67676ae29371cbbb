"""A connector that cannot be reached, or that gave up."""

from streams.errors import SlackwaterError

LONGEST = 64 << 20
"""The most bytes of one message, either way."""


class ConnectorFailed(SlackwaterError):
    """The connector ended with an error; the text is what it said."""


def text_of(error: BaseException) -> str:
    """What a failure is called on the wire: its kind and its text."""
    if isinstance(error, SlackwaterError):
        return str(error)
    return f"{type(error).__name__}: {error}"
