"""Fixtures of federation's tests: pairs of brokers, upstream and downstream, of all kinds."""

from collections.abc import Callable, Iterator

import pytest

from tests.conformance.federation.place import HAS_RABBITMQ, Kind, Place

PAIRS: tuple[tuple[Kind, Kind], ...] = (
    ("fluffle", "fluffle"),
    ("rabbitmq", "fluffle"),
    ("fluffle", "rabbitmq"),
    ("rabbitmq", "rabbitmq"),
)
"""Upstream and downstream; the last one shows that a test is right."""

Pair = tuple[Place, Place]


@pytest.fixture(scope="session")
def places() -> Iterator[Callable[[Kind, str], Place]]:
    """Brokers by their kind and the name of their cluster; kept for the session, as RabbitMQ needs seconds to start."""
    started: dict[tuple[Kind, str], Place] = {}

    def start(kind: Kind, name: str) -> Place:
        if kind == "rabbitmq" and not HAS_RABBITMQ:
            pytest.skip("there is no RabbitMQ here")
        if (kind, name) not in started:
            started[kind, name] = Place(kind, name)
        return started[kind, name]

    yield start
    for each in started.values():
        each.stop()


@pytest.fixture(params=PAIRS, ids=lambda pair: f"{pair[0]}-to-{pair[1]}")
def pair(request: pytest.FixtureRequest, places: Callable[[Kind, str], Place]) -> Pair:
    """An upstream and a downstream of each combination."""
    up, down = request.param
    return places(up, f"up-{up}"), places(down, f"down-{down}")


@pytest.fixture(params=("fluffle", "rabbitmq"))
def downstream(request: pytest.FixtureRequest, places: Callable[[Kind, str], Place]) -> Place:
    """A downstream of each kind, for faults that RabbitMQ judges."""
    kind: Kind = request.param
    return places(kind, f"down-{kind}")


@pytest.fixture
def upstream(places: Callable[[Kind, str], Place]) -> Place:
    """An upstream for faults: Fluffle's, whose texts are RabbitMQ's."""
    return places("fluffle", "up-fluffle")
