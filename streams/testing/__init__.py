"""The public test kit: run a view in process and look at it at every time.

`maintain` compiles a query and steps it over tables of updates; its result tells the view's
contents and errors at any time. See `streams.testing.maintain` for an example.
"""

from streams.testing.maintain import Maintained, maintain

__all__ = ["Maintained", "maintain"]
