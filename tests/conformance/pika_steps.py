"""Steps that the tests with pika's BlockingConnection share."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pika
from pika.exceptions import AMQPConnectionError

from tests.kit.client_steps import TIMEOUT_S
from tests.kit.patience import wait_until
from tests.kit.servers import Server

Connect = Callable[..., Any]


def parameters(server: Server, vhost: str = "/", user: str = "guest", **options: Any) -> Any:
    """Return parameters to connect; they allow no retries, so that a refusal is seen at once."""
    return pika.ConnectionParameters(
        host=server.host,
        port=server.port,
        virtual_host=vhost,
        credentials=pika.PlainCredentials(user, options.pop("password", user)),
        blocked_connection_timeout=TIMEOUT_S,
        **options,
    )


@contextlib.contextmanager
def blocking_connections(server: Server) -> Iterator[Connect]:
    """Give a maker of BlockingConnections, with the arguments of `parameters`; they end with the block."""
    made: list[Any] = []

    def make(*arguments: Any, **options: Any) -> Any:
        made.append(pika.BlockingConnection(parameters(server, *arguments, **options)))
        return made[-1]

    yield make
    for each in made:
        # A user or vhost that the test made has taken its connections along.
        with contextlib.suppress(AMQPConnectionError):
            each.close()


def let_happen(connection: Any, condition: Callable[[], Any]) -> None:
    """Serve the connection until the condition holds."""

    def served() -> Any:
        connection.process_data_events(time_limit=0)
        return condition()

    wait_until(served)


def wait_get(channel: Any, queue: str) -> tuple[Any, Any, bytes]:
    """basic.get until there is a message; auto-acknowledged."""
    got: list[tuple[Any, Any, bytes]] = []

    def get() -> bool:
        method, properties, body = channel.basic_get(queue, auto_ack=True)
        if method is not None:
            got.append((method, properties, body))
        return bool(got)

    wait_until(get, f"a message in {queue}")
    return got[0]
