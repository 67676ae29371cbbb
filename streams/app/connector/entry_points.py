"""Built-in connectors as programs, which any driver of the protocol can start."""

import sys

from connectors.transport import stdio
from streams.app.arrow_without_pandas import without_pandas
from streams.app.connector.lookup import named


def webhook() -> None:
    """`materialize-webhook CALL`: answer one call on pipes."""
    arguments = sys.argv[1:]
    if len(arguments) != 1 or arguments[0] not in stdio.CALLS:
        sys.exit(f"usage: materialize-webhook {'|'.join(stdio.CALLS)}")
    without_pandas()
    pipes = (sys.stdin.buffer, sys.stdout.buffer)
    sys.exit(stdio.serve(named("webhook"), arguments[0], pipes, sys.stderr.buffer))
