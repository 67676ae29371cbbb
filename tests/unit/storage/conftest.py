"""What the tests of storage share."""

import pytest

from streams.storage import Storage
from tests.support.storages import Place


@pytest.fixture
def place() -> Place:
    """An empty broker in memory whose clock advances by 1 ms a record, to open clients of."""
    return Place()


@pytest.fixture
def storage(place: Place) -> Storage:
    """One client of storage on the broker of `place`."""
    return place.client()
