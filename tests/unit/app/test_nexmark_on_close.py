"""Nexmark's windows over event times, each row once when its window ends, against DuckDB."""

import pytest

from streams.bench.nexmark.queries import ON_CLOSE
from tests.support.nexmark_on_close import check


@pytest.mark.parametrize("name", ON_CLOSE)
def test_a_window_appears_once_when_it_ends(name: str) -> None:
    check(name, "local")
