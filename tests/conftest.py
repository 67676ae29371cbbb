"""One real broker for the whole run, started when the first test asks for it."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from streams.errors import InvalidUsage
from streams.kafka.embedded import EmbeddedBroker
from streams.temporary import temporary_directory
from tests.support.forks import stop_fork_server
from tests.support.postgres import Server
from tests.support.tiers import mark_long

MEMORY = Path("/dev/shm")

# No deadline: a busy machine is no failure. `make test` tries the same examples in each run, so
# that what fails is what was changed; `make test-long` draws new ones, "long" of each property
# (D251). `tests.support.examples` scales those that say how many they want. Hypothesis also
# draws literals of all local modules that are loaded, which other tests and changes decide:
# `make test` draws none.
for name, most in {"short": 40, "long": 300, "thorough": 5000}.items():
    settings.register_profile(
        name, max_examples=most, deadline=None, derandomize=name == "short"
    )
settings.load_profile("short")


EXIT_STATUS = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--hypothesis-profile", None) in {None, "short"}:
        providers._get_local_constants = Constants


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full-minute",
        action="store_true",
        help="let outages and races of storage last a minute each, with the timeouts of users",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_long(items)  # before -m chooses among them


@pytest.fixture(scope="session")
def is_full_minute(request: pytest.FixtureRequest) -> bool:
    """Whether what the requirements want for a minute is to last one, and not some seconds."""
    return bool(request.config.getoption("--full-minute"))


@pytest.fixture
def memory_path(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory, where there is one: for databases that sync what they write."""
    with in_memory(tmp_path) as path:
        yield path


@contextmanager
def in_memory(otherwise: Path) -> Iterator[Path]:
    if not MEMORY.is_dir():
        yield otherwise
        return
    with temporary_directory("slackwater-test-", MEMORY) as path:
        yield path


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A PostgreSQL server, running."""
    server = Server(MEMORY if MEMORY.is_dir() else None)
    yield server
    server.close()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """An embedded broker, running; `broker.bootstrap` is its address."""
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="session")
def one_to_break(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """An embedded broker, not started, of one session: tests stop it by way of `own`."""
    embedded = EmbeddedBroker(tmp_path_factory.mktemp("own"))
    yield embedded
    embedded.stop()


@pytest.fixture
def own(one_to_break: EmbeddedBroker) -> EmbeddedBroker:
    """A broker, running, that a test may do anything to: the next starts it, if it has to."""
    with suppress(InvalidUsage):  # it runs
        one_to_break.start()
    return one_to_break


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if exitstatus != pytest.ExitCode.USAGE_ERROR:  # which is told behind everything else
        session.config.stash[EXIT_STATUS] = int(exitstatus)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """End the process at once: the result is the last thing that a run prints.

    Clients that tests leave open have daemon threads, whose engines outlive the interpreter;
    DuckDB's binding would list each object of theirs as leaked, forty lines behind the result.
    Services end in the same way (`streams.app.service_process.serve`).
    """
    stop_fork_server()
    if EXIT_STATUS in config.stash:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(config.stash[EXIT_STATUS])
