"""The session that the tests of secrets, modes and unpickling look at: it runs once."""

from collections.abc import Iterator

import pytest

from tests.security.session import Session


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A session that is over: the nodes have stopped."""
    made = Session(tmp_path_factory.mktemp("session"))
    try:
        made.run()
        yield made
    finally:
        made.close()
