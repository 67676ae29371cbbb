"""What the tests of storage share."""

import pytest

from streams.storage import Storage
from tests.support.storages import Place


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.fixture
def storage(place: Place) -> Storage:
    return place.client()
