"""One real broker for the whole run, started when the first test asks for it."""

import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings

from streams.kafka.embedded import EmbeddedBroker

# No deadline: a busy machine is no failure. `make test-long` tries "long" examples of each
# property, and `tests.support.examples` scales those that say how many they want.
for name, most in {"short": 40, "long": 300, "thorough": 5000}.items():
    settings.register_profile(name, max_examples=most, deadline=None)
settings.load_profile("short")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full-minute",
        action="store_true",
        help="let outages and races of storage last a minute each, with the timeouts of users",
    )


@pytest.fixture(scope="session")
def is_full_minute(request: pytest.FixtureRequest) -> bool:
    """Whether what the requirements want for a minute is to last one, and not some seconds."""
    return bool(request.config.getoption("--full-minute"))


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """An embedded broker, running; `broker.bootstrap` is its address."""
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as running:
        yield running


def pytest_unconfigure() -> None:
    """Close the engine that tests share: DuckDB tells of each object that outlives Python."""
    flows = sys.modules.get("tests.support.flows")
    if flows is not None:
        flows.kernel.cache_clear()
