"""The public test kit: runs a view in process and returns its contents at any time.

`maintain` compiles a query and steps it over tables of updates; its result has the view's
contents and errors at any time. See `streams.testing.maintain` for an example.
"""

from streams.testing.maintain import Maintained, maintain

__all__ = ["Maintained", "maintain"]
