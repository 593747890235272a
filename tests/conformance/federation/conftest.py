"""Fixtures of federation's tests: pairs of brokers, upstream and downstream, of all kinds."""

from collections.abc import Callable, Iterator

import pytest

from tests.conformance.federation.place import HAS_RABBITMQ, Kind, Place, clear

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
def pair(request: pytest.FixtureRequest, places: Callable[[Kind, str], Place]) -> Iterator[Pair]:
    """An upstream and a downstream of each combination; what a test made on them goes with it."""
    up_kind, down_kind = request.param
    up, down = places(up_kind, f"up-{up_kind}"), places(down_kind, f"down-{down_kind}")
    yield up, down
    clear(up, down)


@pytest.fixture
def upstream(places: Callable[[Kind, str], Place]) -> Iterator[Place]:
    """An upstream for faults: Fluffle's, whose texts are RabbitMQ's; what a test made on it goes with it."""
    place = places("fluffle", "up-fluffle")
    yield place
    clear(place)


@pytest.fixture(params=("fluffle", "rabbitmq"))
def downstream(
    request: pytest.FixtureRequest,
    places: Callable[[Kind, str], Place],
    upstream: Place,  # cleared after this one, whose links make queues there
) -> Iterator[Place]:
    """A downstream of each kind, for faults that RabbitMQ judges; what a test made on it goes with it."""
    kind: Kind = request.param
    place = places(kind, f"down-{kind}")
    yield place
    clear(place)
