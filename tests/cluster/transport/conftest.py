"""The tests of links share these fixtures."""

from pathlib import Path

import pytest

from tests.kit import certificates


@pytest.fixture(scope="session")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with an authority and the certificates of three nodes."""
    directory = tmp_path_factory.mktemp("certs")
    certificates.make(directory, "rabbit@n1", "rabbit@n2", "rabbit@n3")
    return directory
