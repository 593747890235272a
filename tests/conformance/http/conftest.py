"""Fixtures of the HTTP API's tests: servers with management, and clients of their APIs.

`server` and `server_with` are those of all conformance tests with management on, so `connect`, `channel`, `name`,
`make_vhost`, `make_user` and the like are of these servers, too.
"""

from collections.abc import Callable, Iterator

import pytest

from tests.conformance.conftest import Bystander
from tests.kit.amqp_client import Channel, Connection
from tests.kit.http_api import HttpApi
from tests.kit.server_cluster import Cluster, is_rabbitmq
from tests.kit.servers import Admin, Server, Settings, start_server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The server of these tests, with default settings."""
    started = start_server(with_management=True)
    yield started
    started.stop()


@pytest.fixture(scope="session")
def server_with() -> Iterator[Callable[[Settings], Server]]:
    """Servers with other settings; kept for the session. A start costs seconds, so mark those tests slow."""
    started: dict[frozenset[tuple[str, str]], Server] = {}

    def start(settings: Settings) -> Server:
        key = frozenset(settings.items())
        if key not in started:
            started[key] = start_server(settings, with_management=True)
        return started[key]

    yield start
    for each in started.values():
        each.stop()


@pytest.fixture(scope="session")
def bystander(server: Server) -> Iterator[Bystander]:
    made = Bystander(server)
    yield made
    made.leave()


@pytest.fixture(scope="session")
def api(server: Server) -> HttpApi:
    """The API of `server`, as guest, who is an administrator."""
    return HttpApi(server)


@pytest.fixture
def vhost(make_vhost: Callable[[], str]) -> str:
    """A vhost of the test's own, in which guest may do everything."""
    return make_vhost()


@pytest.fixture
def make_manager(api: HttpApi, admin: Admin, name: Callable[[str], str]) -> Iterator[Callable[..., HttpApi]]:
    """Make users who may use the API, with the tag and the permissions given; the API as they see it.

    `make_manager(vhost)` may do everything there; `make_manager(vhost, "^a", "^b", "^c", tag="monitoring")`;
    `make_manager(None)` has no permission anywhere.
    """
    made: list[str] = []

    def add(
        vhost: str | None,
        configure: str = ".*",
        write: str = ".*",
        read: str = ".*",
        *,
        tag: str = "management",
    ) -> HttpApi:
        made.append(name("manager"))
        admin.add_user(made[-1], made[-1], (tag,))
        if vhost is not None:
            admin.set_permissions(made[-1], vhost, configure, write, read)
        return api.as_user(made[-1])

    yield add
    for each in made:
        admin.delete_user(each)


@pytest.fixture(scope="session")
def managed_cluster() -> Iterator[Cluster]:
    """Three nodes of Fluffle, each with management. Tests leave them running."""
    if is_rabbitmq():
        pytest.skip("a cluster with management is started of Fluffle only")
    from tests.kit.managed_fluffle import start_managed_cluster

    started = start_managed_cluster()
    yield started
    started.stop()


@pytest.fixture
def cluster_api(managed_cluster: Cluster) -> list[HttpApi]:
    """The APIs of the three nodes of `managed_cluster`, as guest."""
    from tests.kit.managed_fluffle import managed

    managed_cluster.heal()
    return [HttpApi(node) for node in managed(managed_cluster)]


@pytest.fixture
def on_node() -> Iterator[Callable[..., Channel]]:
    """Channel 1 of a new connection to a node: `on_node(managed_cluster[1])`."""
    made: list[Connection] = []

    def make_channel(node: Server, *arguments: object, **options: object) -> Channel:
        made.append(Connection(node, *arguments, **options))  # type: ignore[arg-type]
        return made[-1].channel(1)

    yield make_channel
    for each in made:
        each.abandon()
