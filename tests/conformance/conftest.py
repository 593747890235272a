"""Fixtures of the conformance tests: a server for the session, names and connections for a test."""

import itertools
import secrets
import warnings
from collections.abc import Callable, Iterator

import pytest

from node.amqp import methods
from tests.kit.amqp_client import Channel, Connection
from tests.kit.mirror_steps import delete_queues, set_mirroring
from tests.kit.server_cluster import Cluster, ClusterNode, start_cluster
from tests.kit.servers import Admin, Server, Settings, start_server

_RUN = secrets.token_hex(2)
_numbers = itertools.count(1)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "disturbs_everyone: the test may end other connections (the bystander reconnects)"
    )


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The server of all tests, with default settings."""
    started = start_server()
    yield started
    started.stop()


@pytest.fixture(scope="session")
def server_with() -> Iterator[Callable[..., Server]]:
    """Servers with other settings, e.g. `server_with({"consumer_timeout": "1000"})`; kept for the session.

    A start of RabbitMQ costs some six seconds, so mark those tests slow.
    """
    started: dict[frozenset[tuple[str, str]], Server] = {}

    def start(settings: Settings) -> Server:
        key = frozenset(settings.items())
        if key not in started:
            started[key] = start_server(settings)
        return started[key]

    yield start
    for each in started.values():
        each.stop()


@pytest.fixture
def admin(server: Server) -> Admin:
    return server.admin


@pytest.fixture
def name() -> Callable[[str], str]:
    """Make names that no other test uses: `name('q')`."""
    return lambda prefix: f"{prefix}-{_RUN}-{next(_numbers)}"


@pytest.fixture
def connect(server: Server) -> Iterator[Callable[..., Connection]]:
    """Make connections with `Connection`'s arguments; they end with the test."""
    made: list[Connection] = []

    def make_connection(*arguments: object, to: Server = server, **options: object) -> Connection:
        made.append(Connection(to, *arguments, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make_connection
    for each in made:
        each.abandon()


@pytest.fixture
def connection(connect: Callable[..., Connection]) -> Connection:
    """An open connection of guest to `/`."""
    return connect()


@pytest.fixture
def channel(connection: Connection) -> Channel:
    """Channel 1 of `connection`, open."""
    return connection.channel(1)


@pytest.fixture
def make_vhost(server: Server, name: Callable[[str], str]) -> Iterator[Callable[[], str]]:
    """Make vhosts in which guest may do everything; they go with the test."""
    made: list[str] = []

    def add() -> str:
        made.append(name("vhost"))
        server.admin.add_vhost(made[-1])
        server.admin.set_permissions("guest", made[-1], ".*", ".*", ".*")
        return made[-1]

    yield add
    for each in made:
        _ignore_refusal(server.admin.delete_vhost, each)


@pytest.fixture
def make_user(server: Server, name: Callable[[str], str]) -> Iterator[Callable[..., str]]:
    """Make users, whose password is their name, with permissions for a vhost; they go with the test.

    `make_user()` may do everything in `/`; `make_user("/", "^a", "^b", "^c")` gives configure, write, read;
    `make_user(None)` has no permission anywhere.
    """
    made: list[str] = []

    def add(vhost: str | None = "/", configure: str = ".*", write: str = ".*", read: str = ".*") -> str:
        made.append(name("user"))
        server.admin.add_user(made[-1], made[-1])
        if vhost is not None:
            server.admin.set_permissions(made[-1], vhost, configure, write, read)
        return made[-1]

    yield add
    for each in made:
        _ignore_refusal(server.admin.delete_user, each)


class Bystander:
    """A client that has nothing to do with the test: it must notice nothing of what the test does."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.reconnect()

    def reconnect(self) -> None:
        self._connection = Connection(self._server)
        self._channel = self._connection.channel(1)
        self._queue = self._channel.declare(exclusive=True)
        self._channel.consume(self._queue, no_ack=True)

    def check(self) -> None:
        """A message of its own still comes round, and nothing else came."""
        self._channel.publish("", self._queue, b"still here")
        assert self._channel.deliver().body == b"still here"
        self._channel.call(methods.ChannelFlow, active=True)

    def leave(self) -> None:
        self._connection.abandon()


@pytest.fixture(scope="session")
def bystander(server: Server) -> Iterator[Bystander]:
    made = Bystander(server)
    yield made
    made.leave()


@pytest.fixture(autouse=True)
def no_other_connection_notices(request: pytest.FixtureRequest, bystander: Bystander) -> Iterator[None]:
    """After each test, whatever it did, another connection works on (docs/security.md, "Hostile clients")."""
    yield
    if request.node.get_closest_marker("disturbs_everyone"):
        bystander.leave()
        bystander.reconnect()
    else:
        bystander.check()


def _ignore_refusal(action: Callable[[str], None], argument: str) -> None:
    """Delete what the test may have deleted itself."""
    try:
        action(argument)
    except RuntimeError:
        return


class _SharedCluster:
    """The cluster of all tests, started when the first asks and again when it cannot be healed."""

    def __init__(self) -> None:
        self._cluster: Cluster | None = None

    def healed(self) -> Cluster:
        """The cluster with all its nodes running."""
        try:
            if self._cluster is not None:
                self._cluster.heal()
        except (AssertionError, OSError, RuntimeError) as error:
            warnings.warn(f"the cluster could not be healed: {error}", stacklevel=1)
            self.stop()
        if self._cluster is None:
            self._cluster = start_cluster()
        return self._cluster

    def alive(self) -> Cluster:
        """The cluster, which no test has disturbed as far as its processes tell."""
        if self._cluster is not None and all(node.is_alive for node in self._cluster.nodes):
            return self._cluster
        return self.healed()

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.stop()
            self._cluster = None


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[_SharedCluster]:
    """Give the cluster that `cluster` and `shaken_cluster` share."""
    shared = _SharedCluster()
    yield shared
    shared.stop()


@pytest.fixture
def cluster(shared_cluster: _SharedCluster) -> Cluster:
    """Three nodes, one broker: amqp-behaviour §9. Tests with this fixture leave all its nodes as they are."""
    return shared_cluster.alive()


@pytest.fixture
def shaken_cluster(shared_cluster: _SharedCluster) -> Iterator[Cluster]:
    """Give the shared cluster to a test that stops nodes; they are brought back after the test."""
    yield shared_cluster.healed()
    shared_cluster.healed()


@pytest.fixture
def mirrored(shared_cluster: _SharedCluster, name: Callable[[str], str]) -> Iterator[Callable[..., str]]:
    """Set policies that mirror: `mirrored()`, `mirrored("exactly", 2, ha_sync_mode="automatic")`.

    Gives the prefix of the queues that it holds for, which is also the policy's name. Policies and queues end
    with the test.
    """
    made: list[str] = []

    def add(mode: str = "all", params: object = None, **more: object) -> str:
        made.append(name("mirrored"))
        set_mirroring(shared_cluster.healed()[0], made[-1], mode, params, **more)
        return made[-1]

    yield add
    healed = shared_cluster.healed()
    for each in made:
        delete_queues(healed[0], each)
        _ignore_refusal(lambda policy: healed[0].admin.clear_policy("/", policy), each)


@pytest.fixture
def on() -> Iterator[Callable[..., Channel]]:
    """Channel 1 of a new connection to a node, with `Connection`'s arguments: `on(cluster[1])`."""
    made: list[Connection] = []

    def make_channel(node: ClusterNode, *arguments: object, **options: object) -> Channel:
        made.append(Connection(node, *arguments, **options))  # type: ignore[arg-type]
        return made[-1].channel(1)

    yield make_channel
    for each in made:
        each.abandon()
