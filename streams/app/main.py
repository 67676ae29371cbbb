"""Entry point of `slackwater`: installs signal handlers before other imports."""

import importlib
import sys

from streams.app import signals


def app() -> None:
    """Run the command line (`streams.app.commands`), and end the process by its exit code."""
    with signals.listening(sys.argv[1:]):
        importlib.import_module("streams.app.commands").app()


if __name__ == "__main__":
    app()
