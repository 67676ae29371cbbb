"""The error of a connector that cannot be reached, or that failed."""

from collections.abc import Iterator

from streams.errors import SlackwaterError

LONGEST = 64 << 20
"""The most bytes of one message, either way."""


class ConnectorFailed(SlackwaterError):
    """The connector ended with an error; the text is its message."""


def text_of(error: BaseException) -> str:
    """The name of a failure on the wire: its kind and text."""
    if isinstance(error, SlackwaterError):
        return str(error)
    return f"{type(error).__name__}: {error}"


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """A failure and its causes."""
    while error is not None:
        yield error
        error = error.__cause__


def is_known(error: SlackwaterError) -> bool:
    """Whether a failure carries its kind: that of a connector elsewhere is only text."""
    return not isinstance(error, ConnectorFailed) or error.__cause__ is not None
