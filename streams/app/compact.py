"""What `spark-submit` runs for one round of compaction, with the options after it.

It handles signals before anything else is imported, as `slackwater` does.
"""

import importlib
import sys

from streams.app import signals


def main() -> None:
    """Run the command, and end the process by its exit code."""
    with signals.listening(["compact", *sys.argv[1:]]):
        importlib.import_module("streams.app.compact_command").main()


if __name__ == "__main__":
    main()
