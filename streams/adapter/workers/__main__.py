"""Starts a worker: `python -m streams.adapter.workers`, with the arguments of `main`.

Pandas would be half of its start, and users wait for that.
"""

import sys
from importlib import import_module

from streams.arrow_without_pandas import without_pandas

if __name__ == "__main__":
    without_pandas()
    sys.exit(import_module("streams.adapter.workers.main").main(sys.argv[1:]))
