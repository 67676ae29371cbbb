"""Built-in connectors as programs, which any driver of the protocol can start."""

from connectors.transport import stdio
from streams.app.connector.lookup import named
from streams.arrow_without_pandas import without_pandas


def webhook() -> None:
    """`materialize-webhook CALL`: answer one call on pipes."""
    without_pandas()
    stdio.main(named("webhook"))
